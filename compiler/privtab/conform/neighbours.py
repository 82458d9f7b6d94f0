"""Further questions of a plan: the rights of a caller who is allowed, one step away from where they are.

Each is about a caller of its own. Those are taken that a system with some kind of mistake would answer wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from privtab.conform.misreadings import CONTINUED, Mistake, View, right_answer, with_entities, with_principals
from privtab.conform.mistakes import is_possible, mistakes
from privtab.conform.nodes import Question, QuestionPlan, World
from privtab.conform.steps import OTHER, Abilities, steps
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import vocabulary
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.scenarios.masks import Key
from privtab.state.nodes import State, merged

_NOTHING = World(state=State(), entities=(), users=(), groups=(), roles=())
LOOKED_AT = 25
"""Rows of a table in which mistakes are looked for that are not about the objects of one row."""
MOST = 4
"""Most questions of a plan, as a multiple of those that prove its cells."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A caller one step away: the words for the step, their rows and request."""

    purpose: str
    state: State
    request: Request
    rule: Rule
    entities: Sequence[Entity]
    right: bool


def extended(
    plan: QuestionPlan,
    *,
    abilities: Abilities,
    changes: Callable[[Rule], bool],
    readings: Mapping[Key, Mapping[str, Rule]],
    prefix: str,
) -> QuestionPlan:
    """A plan with further questions, by which mistakes are seen that the questions so far do not show, and which ones they are."""
    finder = _Finder(plan, abilities, changes, prefix)
    chosen = finder.chosen()
    questions = [*plan.questions, *_questions(plan, chosen, readings)]
    steady = [question for question in questions if not changes(question.rule)]
    whole = replace(
        plan,
        questions=(*steady, *(question for question in questions if changes(question.rule))),
        world=_world(plan.program, plan.world, chosen),
    )
    return replace(whole, mistakes=tuple(finder.possible), unseen=tuple(finder.unseen))


def unseen(
    program: Program,
    questions: Iterable[Question],
    among: Iterable[Mistake],
    programs: Mapping[str, Program],
) -> Iterator[Mistake]:
    """The mistakes that no question shows, each in a world of its own. `programs`: what each mistake makes of the policy, by its id."""
    views = [(View(program, q.state, _entities(program, q.state, q.request, q.rule)), q) for q in questions]
    for mistake in among:
        wrong = programs[mistake.id]
        if all(mistake.answers(view, wrong)(question.request) is question.expected for view, question in views):
            yield mistake


class _Finder:
    def __init__(self, plan: QuestionPlan, abilities: Abilities, changes: Callable[[Rule], bool], prefix: str) -> None:
        self._plan, self._abilities, self._changes = plan, abilities, changes
        self._program = plan.program
        self._prefix = prefix
        self._number = 0
        self.unseen: Sequence[Mistake] = ()
        self.possible = [mistake for mistake in mistakes() if is_possible(mistake, plan.program)]
        self.programs = {mistake.id: mistake.program(plan.program) for mistake in self.possible}

    def chosen(self) -> list[Neighbour]:
        """Neighbours for the mistakes about objects, in each row, then for those that are still unseen, wherever they are seen."""
        found: list[Neighbour] = []
        by_rule: dict[str, list[Question]] = {}
        for question in self._plan.questions:
            by_rule.setdefault(question.rule.id, []).append(question)
        most = (MOST - 1) * len(self._plan.questions)
        about_objects = [mistake for mistake in self.possible if mistake.about_objects]
        looked_at = [question for questions in list(by_rule.values())[:LOOKED_AT] for question in questions]
        others = [mistake for mistake in self.possible if not mistake.about_objects]
        others = list(unseen(self._program, looked_at, others, self.programs))
        not_shown = {mistake.id for mistake in about_objects}
        first = [_first(questions) for questions in by_rule.values()]
        for number, question in enumerate(filter(None, first)):
            missing = list(unseen(self._program, by_rule[question.rule.id], about_objects, self.programs))
            not_shown &= {mistake.id for mistake in missing}
            looked_for = [*missing, *(others if number < LOOKED_AT else ())]
            neighbours = list(self._neighbours(question)) if looked_for else []
            of_row: list[int] = []
            for mistake in looked_for:
                answers = self._answers(mistake)
                order = (*of_row, *(position for position in range(len(neighbours)) if position not in of_row))
                shown = next((position for position in order if answers(neighbours[position])), None)
                if shown is None or len(found) + len(of_row) >= most:
                    continue
                if shown not in of_row:
                    of_row.append(shown)
                not_shown.discard(mistake.id)
                others = [other for other in others if other is not mistake]
            found += [neighbours[position] for position in of_row]
        not_shown |= {mistake.id for mistake in others}
        left = [mistake for mistake in self.possible if mistake.id in not_shown]
        self.unseen = list(unseen(self._program, self._plan.questions, left, self.programs))
        return found

    def _answers(self, mistake: Mistake) -> Callable[[Neighbour], bool]:
        """Whether a system with a mistake answers a neighbour wrongly, in a world of its own."""
        program = self.programs[mistake.id]

        def is_wrong(neighbour: Neighbour) -> bool:
            view = View(self._program, neighbour.state, neighbour.entities)
            return mistake.answers(view, program)(neighbour.request) is not neighbour.right

        return is_wrong

    def _neighbours(self, question: Question) -> Iterator[Neighbour]:
        """The steps from one question, each with principals, and where they are owned entities, of its own."""
        for purpose, state, request in steps(self._program, question, self._abilities):
            self._number += 1
            state_, request_ = self._own(state, request, question.rule)
            right = right_answer(Reference(self._program, state_), request_)
            entities = _entities(self._program, state_, request_, question.rule)
            found = Neighbour(purpose, state_, request_, question.rule, entities, right)
            if self._abilities.makes(_world(self._program, _NOTHING, [found])):
                yield found

    def _own(self, state: State, request: Request, rule: Rule) -> tuple[State, Request]:
        """Rows and a request with names that nothing else of the plan has."""
        mark = f"_n{self._number}"
        declared = {role.name for role in self._program.roles.values()}
        objects = {name for one in (request.resource, *request.with_.values()) for name in one.names[-1:]}

        def principal(text: str) -> str:
            kind, _, name = text.partition(":")
            if name in declared or name in objects or not name.startswith(self._prefix):
                return text
            for end in (CONTINUED, OTHER):
                if name.endswith(end):
                    return f"{kind}:{name.removesuffix(end)}{mark}{end}"
            return f"{kind}:{name}{mark}"

        own = {entity.id for entity, _ in state.owners}
        if self._changes(rule) and vocabulary(self._program).complete(request.resource):
            own.add(request.resource.id)

        def entity(found: Entity) -> Entity:
            names = list(found.names)
            for depth in range(len(names)):
                if "/".join(found.names[: depth + 1]) in own:
                    names[depth] += mark
            return Entity(found.type, "/".join(names))

        state = with_entities(with_principals(state, principal), entity)
        active = request.active_roles
        return state, replace(
            request,
            user=principal(f"user:{request.user}").removeprefix("user:"),
            groups=tuple(principal(f"group:{name}").removeprefix("group:") for name in request.groups),
            active_roles=active and tuple(principal(f"role:{name}").removeprefix("role:") for name in active),
            resource=entity(request.resource),
            with_={slot: entity(one) for slot, one in request.with_.items()},
        )


def _first(questions: Iterable[Question]) -> Question | None:
    """The question of a row to start from: allowed by rows about entities."""
    allowed = [question for question in questions if question.expected and question.named]
    of_entities = [q for q in allowed if q.state.grants or q.state.owners or q.state.members]
    plain = [q for q in of_entities if q.request.user not in q.request.resource.names and not q.state.attributes]
    return next(iter((*plain, *of_entities, *allowed)), None)


# --- the world ---------------------------------------------------------------------------------------------------------


def _entities(program: Program, state: State, request: Request, rule: Rule) -> list[Entity]:
    """The entities that rows and a request are about, and what contains them; what is created does not exist."""
    named = [
        *request.with_.values(), request.resource,
        *(row.entity for row in state.grants), *(entity for entity, _ in state.owners), *(entity for _, entity in state.members),
        *(row.scope for row in state.assignments if row.scope is not None),
    ]  # fmt: skip
    created = str(request.resource) if rule.creates else None
    keys = dict.fromkeys(key for entity in named for key in vocabulary(program).keys(entity))
    return [Entity.parse(key) for key in keys if key != created]


def _world(program: Program, world: World, chosen: Sequence[Neighbour]) -> World:
    """A world with all that some neighbours need besides."""
    state = merged([world.state, *(neighbour.state for neighbour in chosen)])
    entities = {str(entity): entity for entity in world.entities}
    principals = {
        kind: dict.fromkeys(names)
        for kind, names in (("user", world.users), ("group", world.groups), ("role", world.roles))
    }
    for neighbour in chosen:
        rows = neighbour.state
        named = [
            f"user:{neighbour.request.user}",
            *(row.grantee for row in rows.grants),
            *(owner for _, owner in rows.owners),
        ]
        named += [f"user:{user}" for user, _ in rows.members] + [f"user:{user}" for user in rows.service_admins]
        named += [f"user:{user}" if ":" not in user else user for user, _ in rows.memberships]
        named += [f"group:{group}" for _, group in rows.memberships]
        named += [name for row in rows.assignments for name in (row.principal, f"role:{row.role}")]
        for entity in neighbour.entities:
            kind = program.entities[entity.type].principal
            if kind is not None and len(entity.names) == 1:
                named.append(f"{kind}:{entity.id}")
            else:
                entities.setdefault(str(entity), entity)
        for text in named:
            kind_, _, name = text.partition(":")
            if name not in {role.name for role in program.roles.values()}:
                principals[kind_][name] = None
    return World(
        state=state,
        entities=tuple(entities.values()),
        users=tuple(principals["user"]),
        groups=tuple(principals["group"]),
        roles=tuple(principals["role"]),
    )


def _questions(
    plan: QuestionPlan, chosen: Sequence[Neighbour], readings: Mapping[Key, Mapping[str, Rule]]
) -> Iterator[Question]:
    reference = Reference(plan.program, _world(plan.program, plan.world, chosen).state)
    numbers: dict[str, int] = {}
    for question in plan.questions:
        numbers[question.row] = numbers.get(question.row, 0) + 1
    for neighbour in chosen:
        rule = neighbour.rule
        row = f"{rule.entity}/{rule.operation}"
        numbers[row] += 1
        expected = right_answer(reference, neighbour.request)
        others = readings.get((rule.entity, rule.operation), {})
        rules = {name: {**plan.program.rules, (rule.entity, rule.operation): other} for name, other in others.items()}
        read = {
            name: right_answer(Reference(replace(plan.program, rules=found), neighbour.state), neighbour.request)
            for name, found in rules.items()
        }
        yield Question(
            id=f"{row}#{numbers[row]}",
            rule=rule,
            request=neighbour.request,
            expected=expected,
            holds=_words(neighbour.state),
            state=neighbour.state,
            cells=(),
            readings={name: answer for name, answer in read.items() if answer is not expected},
            purpose=neighbour.purpose,
            named=vocabulary(plan.program).complete(neighbour.request.resource),
        )


def _words(state: State) -> str:
    """What a caller has, in words."""
    grants = [
        f"{'denied ' if row.effect == 'deny' else ''}{row.privilege} ({row.entity}) of {row.grantee}"
        for row in state.grants
    ]
    owners = [f"owner ({entity}) {owner}" for entity, owner in state.owners]
    members = [f"member ({entity}) {user}" for user, entity in state.members]
    links = [f"{user} in group:{group}" for user, group in state.memberships]
    links += [
        f"{row.principal} has role:{row.role}{f' within {row.scope}' if row.scope else ''}" for row in state.assignments
    ]
    admins = [f"service admin {user}" for user in state.service_admins]
    return ", ".join([*grants, *owners, *members, *links, *admins]) or "nothing"
