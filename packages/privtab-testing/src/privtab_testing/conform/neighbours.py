"""Further questions of a plan: the rights of a caller who is allowed, one step away from where they are.

Each is about a caller of its own. A neighbour is taken if a system with some kind of mistake would answer it wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from privtab import ir
from privtab.base import Entity, InvalidRequest, Request
from privtab.ir import Feature, vocabulary
from privtab.reference import Reference
from privtab.state import TABLE_COLUMNS, State
from privtab_testing.conform import Question, QuestionPlan
from privtab_testing.conform.misreadings import (
    CONTINUED,
    Renaming,
    View,
    right_answer,
)
from privtab_testing.conform.mistakes import Mistake, is_possible, mistakes, sharing
from privtab_testing.conform.steps import OTHER, Abilities, steps
from privtab_testing.conform.worlds import entities_of, world_of
from privtab_testing.scenarios.masks import Key

LOOKED_AT = 25
"""Rows of a table in which mistakes are looked for that are not about the objects of one row."""
MOST = 4
"""Most questions of a plan, as a multiple of the questions that prove its cells."""


def extended(
    plan: QuestionPlan,
    *,
    abilities: Abilities,
    changes: Callable[[ir.Rule], bool],
    readings: Mapping[Key, Mapping[str, ir.Rule]],
    prefix: str,
) -> QuestionPlan:
    """A plan with further questions, by which mistakes are seen that the questions so far do not show, and which ones they are."""
    finder = _Finder(plan, abilities, changes, prefix)
    questions = [*plan.questions, *_numbered(plan, finder.chosen(), readings)]
    world = world_of(plan.program, questions)
    questions.sort(key=lambda question: changes(question.rule))
    return replace(
        plan, questions=tuple(questions), world=world, mistakes=tuple(finder.possible), unseen=tuple(finder.unseen)
    )


def _view(program: ir.Program, question: Question) -> View:
    """The basis of decisions of a system that has the rows of a question alone."""
    state = question.state
    return View(program, state, entities_of(program, state, question.request, question.rule))


def _shows(mistake: Mistake, wrong: ir.Program, view: View, question: Question) -> bool:
    """Return whether a system with a mistake, which makes `wrong` of the policy, answers a question wrongly."""
    changed, request = mistake.misread.view(view), mistake.misread.request(question.request, view.program)
    if wrong is view.program and request == question.request and _same_rows(changed.state, view.state):
        return False  # it sees what there is
    return right_answer(Reference(wrong, changed.state), request) is not question.expected


def _same_rows(state: State, other: State) -> bool:
    """Return whether two states have the same rows in the same order."""
    return all(tuple(getattr(state, table)) == tuple(getattr(other, table)) for table in TABLE_COLUMNS)


def unseen(
    program: ir.Program,
    questions: Iterable[Question],
    among: Iterable[Mistake],
    programs: Mapping[str, ir.Program],
) -> Iterator[Mistake]:
    """The mistakes that no question shows, each in a world of its own. `programs`: what each mistake makes of the policy, by its id."""
    views = [(_view(program, question), question) for question in questions]
    for mistake in among:
        if mistake.kept_by is not None:
            answers: dict[object, bool] = {}
            asked = ((mistake.kept_by(question.request), question.expected) for _, question in views)
            if all(answers.setdefault(key, expected) is expected for key, expected in asked):
                yield mistake
        elif not any(_shows(mistake, programs[mistake.id], view, question) for view, question in views):
            yield mistake


class _Finder:
    def __init__(
        self, plan: QuestionPlan, abilities: Abilities, changes: Callable[[ir.Rule], bool], prefix: str
    ) -> None:
        self._plan, self._abilities, self._changes = plan, abilities, changes
        self._program = plan.program
        self._prefix = prefix
        self._number = 0
        self.unseen: Sequence[Mistake] = ()
        self.possible = [mistake for mistake in mistakes() if is_possible(mistake, plan.program)]
        changed = {mistake.id: mistake.misread.program(plan.program) for mistake in self.possible}
        self.programs = {id_: plan.program if other == plan.program else other for id_, other in changed.items()}

    def chosen(self) -> list[Question]:
        """Neighbours for the mistakes about objects, in each row, then for mistakes that are still unseen, wherever they are seen."""
        found: list[Question] = []
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
                wrong = self.programs[mistake.id]
                order = (*of_row, *(position for position in range(len(neighbours)) if position not in of_row))
                shown = next((position for position in order if _shows(mistake, wrong, *neighbours[position])), None)
                if shown is None or len(found) + len(of_row) >= most:
                    continue
                if shown not in of_row:
                    of_row.append(shown)
                not_shown.discard(mistake.id)
                others = [other for other in others if other is not mistake]
            found += [neighbours[position][1] for position in of_row]
        if any(mistake.kept_by is not None for mistake in others) and self._abilities.odd_names:
            found += (pair := self._alike())
            others = [mistake for mistake in others if mistake.kept_by is None or not pair]
        not_shown |= {mistake.id for mistake in others}
        left = [mistake for mistake in self.possible if mistake.id in not_shown]
        self.unseen = list(unseen(self._program, self._plan.questions, left, self.programs))
        return found

    def _alike(self) -> list[Question]:
        """Two questions in a row that differ in the type of the resource alone, and in their answer."""
        words = "asked in a row with the same on another type"
        for rule, other in sharing(self._program):
            if self._changes(rule) or self._changes(other):
                continue
            for question in self._plan.questions:
                if question.rule is not rule or not question.named or not question.expected:
                    continue
                asked = replace(question.request, resource=Entity(other.entity, question.request.resource.id))
                try:
                    vocabulary(self._program).check(asked)
                except InvalidRequest:  # the other row has further objects
                    continue
                self._number += 1
                both_asked = ((rule, question.request), (other, asked))
                made = [self._made(words, question.state, request, one) for one, request in both_asked]
                pair = [found for steps_of_one in made for _, found in steps_of_one]
                if len({found.expected for found in pair}) > 1:
                    return pair
        return []

    def _neighbours(self, question: Question) -> Iterator[tuple[View, Question]]:
        """The steps from one question, each with principals, and where they are owned entities, of its own."""
        for purpose, state, request in steps(self._program, question, self._abilities):
            self._number += 1
            yield from self._made(purpose, state, request, question.rule)

    def _made(self, purpose: str, state: State, request: Request, rule: ir.Rule) -> Iterator[tuple[View, Question]]:
        """The question of a step, if a driver can make its world."""
        for state_, request_ in [self._own(state, request, rule)]:
            found = Question(
                id="",
                rule=rule,
                request=request_,
                expected=right_answer(Reference(self._program, state_), request_),
                holds=_words(state_),
                state=state_,
                cells=(),
                readings={},
                purpose=purpose,
                named=vocabulary(self._program).complete(request_.resource),
            )
            world = world_of(self._program, [found])
            known = (e in self._plan.world.entities for e in world.entities if e.type in self._abilities.there)
            if all(known) and self._abilities.makes(world):
                yield _view(self._program, found), found

    def _own(self, state: State, request: Request, rule: ir.Rule) -> tuple[State, Request]:
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

        everybody = self._program.semantics.everybody
        own = {entity.id for entity, _ in state.owners}
        for names in (row.entity.names for row in state.grants if row.grantee == everybody):
            # With `or below`, it counts for what contains its entity, too.
            first = 1 if Feature.BELOW.used_by(self._program) else len(names)
            own |= {"/".join(names[:depth]) for depth in range(first, len(names) + 1)}
        if self._changes(rule) and vocabulary(self._program).complete(request.resource):
            own.add(request.resource.id)

        def entity(found: Entity) -> Entity:
            names = list(found.names)
            for depth in range(len(names)):
                if "/".join(found.names[: depth + 1]) in own:
                    names[depth] += mark
            return Entity(found.type, "/".join(names))

        own_names = Renaming(entity=entity, principal=principal)
        return own_names.state(state), own_names.request(request)


def _first(questions: Iterable[Question]) -> Question | None:
    """The question of a row to start from: allowed by rows about entities."""
    allowed = [question for question in questions if question.expected and question.named]
    of_entities = [q for q in allowed if q.state.grants or q.state.owners or q.state.members]
    plain = [q for q in of_entities if q.request.user not in q.request.resource.names and not q.state.attributes]
    return next(iter((*plain, *of_entities, *allowed)), None)


def _numbered(
    plan: QuestionPlan, chosen: Iterable[Question], readings: Mapping[Key, Mapping[str, ir.Rule]]
) -> Iterator[Question]:
    """Questions with their ids, and what other readings of their row expect."""
    numbers = Counter(question.row for question in plan.questions)
    for question in chosen:
        key = question.rule.entity, question.rule.operation
        numbers[question.row] += 1
        read: dict[str, bool] = {}
        for name, other in readings.get(key, {}).items():
            program = replace(plan.program, rules={**plan.program.rules, key: other})
            answer = right_answer(Reference(program, question.state), question.request)
            if answer is not question.expected:
                read[name] = answer
        yield replace(question, id=f"{question.row}#{numbers[question.row]}", readings=read)


def _words(state: State) -> str:
    """The rights of a caller, in words."""
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
