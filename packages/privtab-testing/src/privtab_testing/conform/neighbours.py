"""Further questions of a plan: the rights of a caller who is allowed, one step away from where they are.

Each is about a caller of its own. A neighbour is taken if a system with some kind of mistake would answer it wrongly: the kinds of
mistakes that a system could make with the meaning of a table, and what a policy needs for each to show, are here as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product

from privtab import ir
from privtab.base import PRINCIPAL_KINDS, Entity, Request
from privtab.ir import Feature, on_entity, vocabulary
from privtab.reference import Reference
from privtab.state import TABLE_COLUMNS, State
from privtab_testing.conform import Question, QuestionPlan
from privtab_testing.conform import misreadings as wrong
from privtab_testing.conform.misreadings import (
    CONTINUED,
    SAME,
    Misreading,
    Mistake,
    Renaming,
    View,
    both,
    only,
    right_answer,
)
from privtab_testing.conform.steps import OTHER, Abilities, steps
from privtab_testing.conform.worlds import entities_of, world_of
from privtab_testing.scenarios.masks import Key


def _denies(program: ir.Program, *kinds: str) -> bool:
    """Return whether principals of some kinds can be denied privileges."""
    return program.semantics.deny != "none" and any(kind in program.semantics.grantees for kind in kinds)


def _has_groups(program: ir.Program, of: Iterable[str]) -> bool:
    """Return whether groups of the state may be grantees or assignees, as `of` names them."""
    return "state" in program.semantics.groups and "group" in of


def _has_roles(program: ir.Program) -> bool:
    """Return whether states have roles of their own."""
    return "role" in program.semantics.grantees and not program.roles


def _owns(program: ir.Program, kind: str) -> bool:
    return program.semantics.owner is not None and kind in program.semantics.owner.kinds


_POSSIBLE: Mapping[str, Callable[[ir.Program], bool]] = {
    "inheritance": lambda program: bool(program.inherited),
    "no inheritance": lambda program: not program.inherited.issuperset(program.privileges),
    "denials": lambda program: program.semantics.deny != "none",
    "denials and inheritance": lambda program: program.semantics.deny == "overrides" and bool(program.inherited),
    "denials to users": lambda program: _denies(program, "user"),
    "denials to groups or roles": lambda program: _denies(program, "group", "role"),
    "grants to users": lambda program: "user" in program.semantics.grantees,
    "two kinds of grantees": lambda program: len(program.semantics.grantees) > 1,
    "groups of the state": lambda program: _has_groups(program, program.semantics.grantees),
    "groups in groups": lambda program: "groups" in program.semantics.hierarchy,
    "groups in groups, or roles of roles": lambda program: bool(program.semantics.hierarchy),
    "roles": _has_roles,
    "roles of groups": lambda program: _has_groups(program, program.semantics.assignees),
    "roles of roles": lambda program: "roles" in program.semantics.hierarchy,
    "roles within entities": lambda program: any(role.scopes for role in program.roles.values()) or _has_roles(program),
    "active roles": lambda program: program.semantics.active_roles == "request",
    "groups of requests": lambda program: (
        "request" in program.semantics.groups and "group" in program.semantics.grantees
    ),
    "owners": lambda program: program.semantics.owner is not None,
    "ownership in conditions": lambda program: wrong.never(ir.Owner).program(program) != program,
    "groups that own": lambda program: _owns(program, "group"),
    "roles that own": lambda program: _owns(program, "role"),
    "a `with` object of the resource's type": lambda program: any(
        rule.entity in slot.types for rule in program.rules.values() for slot in rule.withs
    ),
    "two types in one container": lambda program: (
        len({(t.parent, t.single) for t in program.entities.values()}) < len(program.entities)
    ),
}
"""Tests of a policy for the needs of mistakes; where the policy itself is read wrongly, another reading shows the mistake."""


def is_possible(mistake: Mistake, program: ir.Program) -> bool:
    """Return whether a policy can show a mistake at all."""
    needed = _POSSIBLE.get(mistake.needs)
    if needed is not None and not needed(program):
        return False
    return not mistake.misread.is_of_policy or mistake.misread.program(program) != program


# Two lines or three for each mistake: what it does, then what is misread, and what shows it.
# fmt: off
_OBJECTS = (
    Mistake("any-object", "a right on one entity counts for every entity of its type",
            wrong.named(lambda names: (SAME,) * len(names)), about_objects=True),
    Mistake("same-last-name", "entities are told apart by their last name alone",
            wrong.named(lambda names: (*(SAME,) * (len(names) - 1), names[-1])), about_objects=True),
    Mistake("same-container", "a right on one entity counts for the others in its container",
            wrong.named(lambda names: (*names[:-1], SAME)), about_objects=True),
    Mistake("same-root", "a right counts everywhere below the same root",
            wrong.named(lambda names: (names[0], *(SAME,) * (len(names) - 1))), about_objects=True),
    Mistake("other-root", "the root is not looked at",
            wrong.named(lambda names: (SAME, *names[1:])), about_objects=True),
    Mistake("case-of-entities", "names of entities are compared without their case",
            wrong.named(lambda names: tuple(map(str.lower, names))), about_objects=True),
    Mistake("beginning-of-name", "a name counts for the names that continue it",
            wrong.named(lambda names: tuple(name.removesuffix(CONTINUED) for name in names)), about_objects=True),
    Mistake("other-type", "types are not looked at: a path of one type counts for the same path of others",
            both(wrong.counts_on(wrong.of_other_types), wrong.owned(wrong.of_other_types)),
            "two types in one container", about_objects=True),
    Mistake("objects-swapped", "the resource and a `with` object are taken for each other",
            Misreading(request=wrong.objects_swapped), "a `with` object of the resource's type"),
)
_LEVELS = (
    Mistake("nothing-inherited", "grants count only where they are written",
            wrong.inheritance("none"), "inheritance"),
    Mistake("everything-inherited", "grants count for all that is below",
            wrong.inheritance("down"), "no inheritance"),
    Mistake("one-level", "grants count one level down, and no further",
            both(wrong.inheritance("none"), wrong.counts_on(wrong.one_below)), "inheritance over two levels"),
    Mistake("counts-above", "a grant counts for what contains its entity",
            wrong.counts_on(wrong.containers), about_objects=True),
    Mistake("counts-around", "a grant on an entity counts for all that its container contains",
            wrong.counts_on(wrong.container), about_objects=True),
    Mistake("roots-ignored", "grants on roots count for nothing",
            only("grants", lambda row: len(row.entity.names) > 1)),
    Mistake("only-roots", "only grants on roots count",
            only("grants", lambda row: len(row.entity.names) == 1)),
    Mistake("outermost", "of a type that nests, the outermost level counts, not the nearest",
            wrong.atoms(wrong.outermost), "a type that nests"),
    Mistake("below-ignored", "`or below` is not looked at",
            wrong.atoms(lambda _, atom: on_entity(atom)), "`or below`"),
)
_DENIALS = (
    Mistake("denials-ignored", "denials count for nothing",
            only("grants", lambda row: row.effect == "allow"), "denials"),
    Mistake("denials-allow", "a denial counts as a grant",
            wrong.rows("grants", lambda _, row: [replace(row, effect="allow")]), "denials"),
    Mistake("denials-not-inherited", "a denial counts only where it is written",
            both(wrong.inheritance("none"), wrong.counts_on(wrong.below, "allow")), "denials and inheritance"),
    Mistake("denials-of-everything", "a denial of one privilege denies all",
            wrong.grants_also(lambda view, row: [replace(row, privilege=p) for p in view.program.grantable], "deny"),
            "denials"),
    Mistake("denials-for-everybody", "a denial to one user denies all users",
            wrong.grants_also(lambda view, row: [replace(row, grantee=user) for user in wrong.users(view)], "deny"),
            "denials to users"),
    Mistake("denials-of-others-ignored", "denials to groups and roles count for nothing",
            only("grants", lambda row: row.effect == "allow" or row.grantee.startswith("user:")),
            "denials to groups or roles"),
    Mistake("denials-of-users-ignored", "denials to users count for nothing",
            only("grants", lambda row: row.effect == "allow" or not row.grantee.startswith("user:")),
            "denials to users"),
    Mistake("nearest-wins", "a grant further down prevails over a denial above it",
            wrong.rows("grants", lambda view, row: [] if wrong.is_overridden(view, row) else [row]),
            "denials and inheritance"),
    Mistake("denials-around", "a denial on an entity counts for all that its container contains",
            wrong.counts_on(wrong.container, "deny"), "denials and inheritance"),
)
_PRINCIPALS = (
    Mistake("any-user", "a right of one user counts for every user",
            wrong.called("user", lambda _: SAME), about_objects=True),
    Mistake("any-group", "all groups are one", wrong.called("group", lambda _: SAME), "groups of the state"),
    Mistake("any-role", "all roles are one", wrong.called("role", lambda _: SAME), "roles"),
    Mistake("case-of-users", "names of users are compared without their case",
            wrong.called("user", str.lower), "rights of users"),
    Mistake("beginning-of-users", "a user has the rights of those whose names theirs continues",
            wrong.called("user", lambda name: name.removesuffix(CONTINUED)), "rights of users"),
    Mistake("kinds-confused", "users, groups and roles of one name are one",
            wrong.grants_also(lambda _, row: [
                replace(row, grantee=f"{kind}:{row.grantee.partition(':')[2]}") for kind in PRINCIPAL_KINDS
            ]), "two kinds of grantees"),
    Mistake("users-ignored", "grants to users count for nothing",
            only("grants", lambda row: not row.grantee.startswith("user:")), "grants to users"),
    Mistake("groups-ignored", "groups count for nothing",
            only("memberships", lambda _: False), "groups of the state"),
    Mistake("groups-in-groups-ignored", "groups in groups count for nothing",
            only("memberships", lambda row: not wrong.is_link(row)), "groups in groups"),
    Mistake("everyone-ignored", "the rights of the group of every user count for nothing",
            Misreading(program=wrong.nobody_is_everyone), "a group of every user"),
    Mistake("roles-ignored", "roles count for nothing",
            only("assignments", lambda _: False), "roles"),
    Mistake("roles-of-groups-ignored", "roles that groups hold count for nothing",
            only("assignments", lambda row: not row.principal.startswith("group:")), "roles of groups"),
    Mistake("roles-of-roles-ignored", "roles that roles hold count for nothing",
            only("assignments", lambda row: not wrong.is_link(row)), "roles of roles"),
    Mistake("third-link-ignored", "chains of groups or roles end at the second",
            Misreading(view=wrong.third_links_cut), "groups in groups, or roles of roles"),
    Mistake("links-reversed", "groups in groups, or roles of roles, count the wrong way round",
            both(wrong.rows("memberships", wrong.reversed_link), wrong.rows("assignments", wrong.reversed_link)),
            "groups in groups, or roles of roles"),
    Mistake("scopes-ignored", "a role within an entity counts everywhere",
            wrong.rows("assignments", lambda _, row: [replace(row, scope=None)]), "roles within entities"),
    Mistake("scoped-roles-ignored", "roles within entities count for nothing",
            only("assignments", lambda row: row.scope is None), "roles within entities"),
    Mistake("default-grants-ignored", "the default grants of roles count for nothing",
            Misreading(program=wrong.without_default_grants), "roles with default grants"),
    Mistake("inactive-roles-count", "roles count that the request does not name as active",
            Misreading(request=lambda request, _: replace(request, active_roles=None)), "active roles"),
    Mistake("active-roles-ignored", "no role counts where a request names the active ones",
            Misreading(request=lambda request, _: replace(request, active_roles=request.active_roles and ())),
            "active roles"),
    Mistake("groups-of-requests-ignored", "the groups that a request names count for nothing",
            Misreading(request=lambda request, _: replace(request, groups=())), "groups of requests"),
    Mistake("members-ignored", "nobody is a member of anything", wrong.never(ir.Member), "memberships in conditions"),
    Mistake("everybody-is-a-member", "everybody is a member of everything",
            wrong.always(ir.Member), "memberships in conditions"),
    Mistake("administrators-ignored", "service administrators have no rights",
            wrong.never(ir.ServiceAdmin), "service administrators"),
    Mistake("everybody-administers", "everybody is a service administrator",
            wrong.always(ir.ServiceAdmin), "service administrators in conditions"),
    Mistake("administrators-may-all", "service administrators may do everything",
            wrong.conditions(wrong.administrators_may_all), "rows that administrators may not do"),
)
_OWNERS = (
    Mistake("owners-ignored", "owners have no rights", only("owners", lambda _: False), "ownership in conditions"),
    Mistake("everybody-owns", "everybody owns everything", wrong.always(ir.Owner), "ownership in conditions"),
    Mistake("any-owner", "whoever owns something owns everything that anybody owns",
            wrong.rows("owners", lambda view, row: product([row[0]], {owner for _, owner in view.state.owners})),
            "ownership in conditions"),
    Mistake("owners-of-what-is-below", "owners own what is below, too",
            wrong.owned(wrong.below), "ownership in conditions", about_objects=True),
    Mistake("owners-of-what-is-above", "owners own what contains their entities, too",
            wrong.owned(wrong.containers), "ownership in conditions", about_objects=True),
    Mistake("owning-groups-ignored", "groups that own count for nothing",
            only("owners", lambda row: not row[1].startswith("group:")), "groups that own"),
    Mistake("owning-roles-ignored", "roles that own count for nothing",
            only("owners", lambda row: not row[1].startswith("role:")), "roles that own"),
    Mistake("owners-hold-everything", "owners hold every privilege",
            wrong.owners_hold(lambda program: program.privileges), "owners"),
    Mistake("owners-hold-nothing", "owners do not hold what the policy says they do",
            wrong.owners_hold(lambda _: ()), "owners that hold privileges"),
)
_CONDITIONS = (
    Mistake("gate-skipped", "the gate is not asked", wrong.conditions(lambda *_: ir.ALWAYS, "gate"), "a gate"),
    Mistake("and-as-or", "one of the things that `and` joins is enough",
            wrong.rebuilt(wrong.Joined(by=ir.Or)), "`and`"),
    Mistake("or-as-and", "all of the things that `or` joins are needed",
            wrong.rebuilt(wrong.Joined(by=ir.And)), "`or`"),
    Mistake("any-privilege", "any privilege on an entity counts for any other",
            wrong.atoms(wrong.any_privilege), "two privileges on one type"),
    Mistake("with-objects-skipped", "only the resource is looked at",
            wrong.conditions(partial(wrong.slots_hold, lambda slot: slot != ir.RESOURCE)), "`with` objects"),
    Mistake("resource-skipped", "where there is a `with` object, only that is looked at",
            wrong.conditions(partial(wrong.slots_hold, lambda slot: slot == ir.RESOURCE)), "`with` objects"),
    Mistake("everybody-is-oneself", "`self` holds for everybody", wrong.always(ir.Self), "`self`"),
    Mistake("everybody-holds-the-role", "`holds` holds for everybody", wrong.always(ir.Holds), "`holds`"),
    Mistake("nobody-holds-the-role", "`holds` holds for nobody", wrong.never(ir.Holds), "`holds`"),
    Mistake("flags-ignored", "what a flag requires is never required",
            wrong.rebuilt(wrong.Flags(required=False)), "flags"),
    Mistake("flags-always", "what a flag requires is always required",
            wrong.rebuilt(wrong.Flags(required=True)), "flags"),
    Mistake("comparisons-hold", "attributes are not compared", wrong.always(ir.Compare), "attributes"),
    Mistake("comparisons-fail", "no attributes stand in a relation", wrong.never(ir.Compare), "attributes"),
    Mistake("items-unfiltered", "every item of a listing is shown",
            wrong.conditions(lambda *_: ir.ALWAYS, "each"), "listings"),
    Mistake("implied-ignored", "implied privileges are not given",
            wrong.implied(lambda *_: ()), "privileges that imply others"),
    Mistake("implied-reversed", "privileges imply those that imply them",
            wrong.implied(lambda program, name: (p.name for p in program.privileges.values() if name in p.implies)),
            "privileges that imply others"),
    Mistake("first-row", "every operation on a type is decided as its first one",
            Misreading(program=wrong.first_row_of_each_type), "two rows of one type"),
)
# fmt: on


@cache
def mistakes() -> tuple[Mistake, ...]:
    """All of them, by subject."""
    return (*_OBJECTS, *_LEVELS, *_DENIALS, *_PRINCIPALS, *_OWNERS, *_CONDITIONS)


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
        if not any(_shows(mistake, programs[mistake.id], view, question) for view, question in views):
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
        not_shown |= {mistake.id for mistake in others}
        left = [mistake for mistake in self.possible if mistake.id in not_shown]
        self.unseen = list(unseen(self._program, self._plan.questions, left, self.programs))
        return found

    def _neighbours(self, question: Question) -> Iterator[tuple[View, Question]]:
        """The steps from one question, each with principals, and where they are owned entities, of its own."""
        for purpose, state, request in steps(self._program, question, self._abilities):
            self._number += 1
            state_, request_ = self._own(state, request, question.rule)
            found = Question(
                id="",
                rule=question.rule,
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
