"""Wrong readings of a policy, of rows, or of a request, from which kinds of mistakes are made.

A mistake changes what the reference evaluator sees and then asks that evaluator: no meaning is said again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from privtab.errors import InvalidRequest
from privtab.ir.algebra import Rebuilder
from privtab.ir.formula import mapped, resolve
from privtab.ir.nodes import (
    ALWAYS,
    NEVER,
    And,
    Atom,
    Can,
    Formula,
    Has,
    Member,
    Or,
    Owner,
    Program,
    Rule,
    ServiceAdmin,
    When,
)
from privtab.ir.serialise import vocabulary
from privtab.names import KINDS
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.request import Entity, Request
from privtab.state.nodes import Assignment, Grant, State

CONTINUED = "_more"
"""What a name ends with that continues another one."""
SAME = "x"
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What a system decides by: a policy, rows, and the entities that there are."""

    program: Program
    state: State
    entities: Sequence[Entity]


def _unchanged(view: View) -> View:
    return view


def _as_asked(request: Request, _: Program) -> Request:
    return request


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One kind of mistake: `text` says what such a system does, `needs` what a policy must have for it to show."""

    id: str
    text: str
    needs: str = "rights on entities"
    about_objects: bool = False
    """Whether each row of a table could be decided with it, whatever the others are."""
    program: Callable[[Program], Program] = lambda program: program
    view: Callable[[View], View] = _unchanged
    request: Callable[[Request, Program], Request] = _as_asked

    @property
    def seen_without_policy(self) -> bool:
        """Whether it is about rows or requests, not about the policy."""
        return self.view is not _unchanged or self.request is not _as_asked

    def answers(self, view: View) -> Callable[[Request], bool]:
        """What a system with this mistake would answer."""
        reference = Reference(self.program(view.program), self.view(view).state)
        return lambda request: right_answer(reference, self.request(request, view.program))


def right_answer(reference: Reference, request: Request) -> bool:
    """The reference's answer; what is no valid request is refused."""
    rule = reference.program.rules.get((request.resource.type, request.action))
    if rule is None:
        return False
    try:
        context = EvaluationContext(reference, request)
        return not context.unheld and context.holds(context.condition(rule))
    except (InvalidRequest, KeyError, ValueError):
        return False


# --- rows --------------------------------------------------------------------------------------------------------------


def with_entities(state: State, changed: Callable[[Entity], Entity]) -> State:
    """A state whose rows are about other entities."""
    return replace(
        state,
        members=[(user, changed(entity)) for user, entity in state.members],
        assignments=[replace(row, scope=row.scope and changed(row.scope)) for row in state.assignments],
        grants=[replace(row, entity=changed(row.entity)) for row in state.grants],
        owners=[(changed(entity), owner) for entity, owner in state.owners],
        attributes=[replace(row, entity=row.entity and changed(row.entity)) for row in state.attributes],
    )


def with_principals(state: State, changed: Callable[[str], str]) -> State:
    """A state whose rows are about other principals; `changed` takes and gives them with their kind."""

    def bare(kind: str, name: str) -> str:
        return changed(f"{kind}:{name}").removeprefix(f"{kind}:")

    def member(name: str) -> str:
        return changed(name) if name.startswith("group:") else bare("user", name)

    return replace(
        state,
        members=[(bare("user", user), entity) for user, entity in state.members],
        memberships=[(member(user), bare("group", group)) for user, group in state.memberships],
        assignments=[
            replace(row, principal=changed(row.principal), role=bare("role", row.role)) for row in state.assignments
        ],
        grants=[replace(row, grantee=changed(row.grantee)) for row in state.grants],
        owners=[(entity, changed(owner)) for entity, owner in state.owners],
        service_admins=[bare("user", user) for user in state.service_admins],
        attributes=[replace(row, user=row.user and bare("user", row.user)) for row in state.attributes],
    )


def with_rows(change: Callable[[View], Mapping[str, Iterable[object]]]) -> Callable[[View], View]:
    """A view with other rows in some tables."""

    def changed(view: View) -> View:
        tables: Any = {table: list(found) for table, found in change(view).items()}
        return replace(view, state=replace(view.state, **tables))

    return changed


def only(table: str, kept: Callable[[View, object], bool]) -> Callable[[View], View]:
    """A view with some rows of a table."""
    return with_rows(lambda view: {table: [row for row in getattr(view.state, table) if kept(view, row)]})


def grants(kept: Callable[[Grant], bool]) -> Callable[[View], View]:
    """A view with some grants."""
    return only("grants", lambda _, row: isinstance(row, Grant) and kept(row))


def added(rows: Callable[[View, Grant], Iterable[Grant]]) -> Callable[[View], View]:
    """A view in which grants bring others along."""
    return with_rows(
        lambda view: {"grants": [*view.state.grants, *(new for row in view.state.grants for new in rows(view, row))]}
    )


def owned(rows: Callable[[View, Entity], Iterable[Entity]]) -> Callable[[View], View]:
    """A view in which whoever owns an entity owns others too."""

    def wider(view: View) -> Mapping[str, Iterable[object]]:
        others = ((new, owner) for entity, owner in view.state.owners for new in rows(view, entity))
        return {"owners": [*view.state.owners, *others]}

    return with_rows(wider)


def above(program: Program, entity: Entity) -> list[Entity]:
    """The entities that contain one, the nearest last; none where ids are flat."""
    return [Entity.parse(key) for key in vocabulary(program).keys(entity)[:-1]]


def below(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities that one contains."""
    for other in view.entities:
        is_deeper = other != entity and (other.id == entity.id or other.id.startswith(f"{entity.id}/"))
        if is_deeper and entity in above(view.program, other):
            yield other


def users(view: View) -> list[str]:
    """The users that rows name, with their kind."""
    named = [row.grantee for row in view.state.grants] + [owner for _, owner in view.state.owners]
    found = {name for name in named if name.startswith("user:")}
    return sorted(found | {f"user:{user}" for user, _ in view.state.memberships if ":" not in user})


# --- names -------------------------------------------------------------------------------------------------------------


class Misread(TypedDict):
    """How rows and requests are misread."""

    view: Callable[[View], View]
    request: Callable[[Request, Program], Request]


def named(changed: Callable[[Names], Names]) -> Misread:
    """A mistake by which names of entities are not told apart."""

    def entity(found: Entity) -> Entity:
        if not found.names:
            return found
        names = zip(found.names, changed(found.names), strict=True)
        return Entity(found.type, "/".join(name and new for name, new in names))

    def request(asked: Request, _: Program) -> Request:
        return replace(
            asked, resource=entity(asked.resource), with_={slot: entity(one) for slot, one in asked.with_.items()}
        )

    return {"view": lambda view: replace(view, state=with_entities(view.state, entity)), "request": request}


def called(changed: Callable[[str, str], str]) -> Misread:
    """A mistake by which names of principals are not told apart; `changed` takes a kind and a name."""

    def principal(text: str) -> str:
        kind, _, name = text.partition(":")
        return f"{kind}:{changed(kind, name)}"

    def request(asked: Request, _: Program) -> Request:
        return replace(
            asked,
            user=changed("user", asked.user),
            groups=tuple(changed("group", name) for name in asked.groups),
            active_roles=asked.active_roles and tuple(changed("role", name) for name in asked.active_roles),
        )

    return {"view": lambda view: replace(view, state=with_principals(view.state, principal)), "request": request}


def one_of(kind: str) -> Misread:
    """A mistake by which all principals of a kind are one, but for roles that the policy declares."""

    def changed(of: str, name: str) -> str:
        return SAME if of == kind else name

    def view(found: View) -> View:
        declared = {role.name for role in found.program.roles.values()} if kind == "role" else set()

        def principal(text: str) -> str:
            of, _, name = text.partition(":")
            return text if name in declared else f"{of}:{changed(of, name)}"

        return replace(found, state=with_principals(found.state, principal))

    return {"view": view, "request": called(changed)["request"]}


# --- policies ----------------------------------------------------------------------------------------------------------


def conditions(change: Callable[[Program, Rule, Formula], Formula], *parts: str) -> Callable[[Program], Program]:
    """A policy with other conditions: of the gate, `requires`, `each`, or all of them."""
    names = parts or ("gate", "requires", "each")

    def changed(program: Program) -> Program:
        rules = {}
        for key, rule in program.rules.items():
            formulas = {name: getattr(rule, name) for name in names}
            other: Any = {name: change(program, rule, part) for name, part in formulas.items() if part is not None}
            rules[key] = replace(rule, **other)
        return replace(program, rules=rules)

    return changed


def atoms(change: Callable[[Program, Atom], Formula]) -> Callable[[Program], Program]:
    """A policy with other atoms in every condition."""

    class Changed(Rebuilder):
        def __init__(self, program: Program) -> None:
            self.program = program

        def atom(self, atom: Atom) -> Formula:
            return change(self.program, atom)

    return conditions(lambda program, _, formula: Changed(program).fold(formula))


def always(*kinds: type[object]) -> Callable[[Program], Program]:
    """A policy in which atoms of some kinds hold for everybody."""
    return atoms(lambda _, atom: ALWAYS if isinstance(atom, kinds) else atom)


def never(*kinds: type[object]) -> Callable[[Program], Program]:
    """A policy in which atoms of some kinds hold for nobody."""
    return atoms(lambda _, atom: NEVER if isinstance(atom, kinds) else atom)


class Swapped(Rebuilder):
    """`and` for `or`, and the other way round, as asked."""

    def __init__(self, *, all_: bool, any_: bool) -> None:
        self._all, self._any = all_, any_

    def all_of(self, values: Iterable[Formula]) -> Formula:
        """As Algebra.all_of."""
        return Or(parts=tuple(values)) if self._all else And(parts=tuple(values))

    def any_of(self, values: Iterable[Formula]) -> Formula:
        """As Algebra.any_of."""
        return And(parts=tuple(values)) if self._any else Or(parts=tuple(values))


class Flags(Rebuilder):
    """What flags require, always or never."""

    def __init__(self, *, required: bool) -> None:
        self._required = required

    def when(self, when: When) -> Formula:
        """As Algebra.when."""
        return self.fold(when.body) if self._required else ALWAYS


def semantics(**changed: object) -> Callable[[Program], Program]:
    """A policy with other semantics. An inheritance is that of every privilege."""
    other: Any = changed
    alike: Any = {"inheritance": None} if "inheritance" in changed else {}
    return lambda program: replace(
        program,
        privileges={name: replace(p, **alike) for name, p in program.privileges.items()},
        semantics=replace(program.semantics, **other),
    )


def owners_hold(privileges: Callable[[Program], tuple[str, ...]]) -> Callable[[Program], Program]:
    """A policy whose owners hold other privileges."""

    def changed(program: Program) -> Program:
        owner = program.semantics.owner
        return program if owner is None else semantics(owner=replace(owner, holds=privileges(program)))(program)

    return changed


def implied(implied: Callable[[Program, str], tuple[str, ...]]) -> Callable[[Program], Program]:
    """A policy whose privileges imply others."""
    return lambda program: replace(
        program,
        privileges={name: replace(p, implies=implied(program, name)) for name, p in program.privileges.items()},
    )


def one_level(view: View) -> View:
    """A view in which grants are also written one level down."""
    rows = [
        replace(row, entity=other)
        for row in view.state.grants
        for other in below(view, row.entity)
        if above(view.program, other)[-1:] == [row.entity]
    ]
    return replace(view, state=replace(view.state, grants=[*view.state.grants, *rows]))


def denials_where_written(view: View) -> View:
    """A view in which grants, and no denials, are also written on all that is below."""
    rows = [
        replace(row, entity=other)
        for row in view.state.grants
        if row.effect == "allow"
        for other in below(view, row.entity)
    ]
    return replace(view, state=replace(view.state, grants=[*view.state.grants, *rows]))


def has_deeper_allow(view: View, row: Grant) -> bool:
    """Whether the grantee of a denial is granted the same further down."""
    return any(
        other.effect == "allow"
        and (other.grantee, other.privilege) == (row.grantee, row.privilege)
        and row.entity in above(view.program, other.entity)
        for other in view.state.grants
    )


def is_link(row: object) -> bool:
    """Whether a row of memberships or assignments puts a group into a group, or gives a role to a role."""
    if isinstance(row, Assignment):
        return row.principal.startswith("role:")
    return isinstance(row, tuple) and str(row[0]).startswith("group:")


def links_cut(view: View) -> View:
    """Without the links that start from a group, or a role, in which there is another one."""
    containing = {f"group:{group}" for user, group in view.state.memberships if user.startswith("group:")}
    holders = {row.principal for row in view.state.assignments if row.principal.startswith("role:")}
    given = {f"role:{row.role}" for row in view.state.assignments if row.principal in holders}
    return replace(
        view,
        state=replace(
            view.state,
            memberships=[row for row in view.state.memberships if row[0] not in containing],
            assignments=[row for row in view.state.assignments if row.principal not in given],
        ),
    )


def links_reversed(view: View) -> View:
    """A view in which groups in groups, and roles of roles, are the other way round."""
    memberships = [
        (f"group:{group}", user.removeprefix("group:"))
        for user, group in view.state.memberships
        if user.startswith("group:")
    ]
    assignments = [
        replace(row, principal=f"role:{row.role}", role=row.principal.removeprefix("role:"))
        for row in view.state.assignments
        if row.principal.startswith("role:")
    ]
    return replace(
        view,
        state=replace(
            view.state,
            memberships=[row for row in view.state.memberships if not row[0].startswith("group:")] + memberships,
            assignments=[row for row in view.state.assignments if not row.principal.startswith("role:")] + assignments,
        ),
    )


def kinds_confused(view: View) -> View:
    """A view in which grants are to every kind of principal of that name."""
    return added(
        lambda _, row: [
            replace(row, grantee=f"{kind}:{row.grantee.partition(':')[2]}")
            for kind in KINDS
            if f"{kind}:" not in row.grantee
        ]
    )(view)


def types_confused(view: View) -> View:
    """A view in which rows are also about entities of other types with the same path."""
    types = view.program.entities

    def alike(entity: Entity) -> Iterator[Entity]:
        own = types.get(entity.type)
        for other in types.values():
            if own is not None and other.name != own.name and (other.parent, other.single) == (own.parent, own.single):
                yield Entity(other.name, entity.id)

    wider = added(lambda _, row: [replace(row, entity=other) for other in alike(row.entity)])(view)
    return owned(lambda _, entity: alike(entity))(wider)


def without_default_grants(program: Program) -> Program:
    """A policy whose roles have no default grants."""
    return replace(program, roles={name: replace(role, grants=()) for name, role in program.roles.items()})


def first_row_of_each_type(program: Program) -> Program:
    """A policy in which every row of a type has the condition of the first one."""
    first: dict[str, Rule] = {}
    rules = {}

    def leaf(part: Atom | Can) -> Formula:
        # The first row may refer to others, which would have its own condition.
        return mapped(resolve(program, part), leaf) if isinstance(part, Can) else part

    for key, rule in program.rules.items():
        model = first.setdefault(rule.entity, rule)
        same = model.withs == rule.withs and (model.each is None) == (rule.each is None)
        requires, gate = mapped(model.requires, leaf), mapped(model.gate, leaf)
        rules[key] = replace(rule, requires=requires, gate=gate) if same else rule
    return replace(program, rules=rules)


def objects_swapped(request: Request, _: Program) -> Request:
    """A request whose resource and first `with` object of its type are swapped."""
    for slot, entity in request.with_.items():
        if entity.type == request.resource.type:
            return replace(request, resource=entity, with_={**request.with_, slot: request.resource})
    return request


def any_privilege(program: Program, atom: Atom) -> Formula:
    """An atom, for any privilege of its type."""
    if not isinstance(atom, Has):
        return atom
    on = program.grantable_on(atom.target.type)
    return Or(parts=tuple(replace(atom, privilege=name) for name in on)) if on else atom


def outermost(program: Program, atom: Atom) -> Formula:
    """An atom, of the outermost level where its type nests."""
    if not isinstance(atom, Has | Owner | Member) or atom.target.level != "nearest":
        return atom
    nests = program.entities[atom.target.type].nested
    return replace(atom, target=replace(atom.target, level="first")) if nests else atom


def administrators_may_all(_: Program, __: Rule, formula: Formula) -> Formula:
    """A condition, or being a service administrator."""
    parts = formula.parts if isinstance(formula, Or) else (formula,)
    return formula if ServiceAdmin() in parts or formula == ALWAYS else Or(parts=(*parts, ServiceAdmin()))
