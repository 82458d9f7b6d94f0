"""Wrong readings of a policy, of rows, or of a request, from which kinds of mistakes are made.

A mistake changes what the reference evaluator sees and then asks that evaluator: no meaning is said again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from privtab import ir
from privtab.base import Entity, InvalidRequest, Request, dataclass
from privtab.ir import Rebuilder, replace_atoms, resolve_can, vocabulary
from privtab.reference import EvaluationContext, Reference
from privtab.state import Assignment, Grant, State

CONTINUED = "_more"
"""The end of a name that continues another name."""
SAME = "x"
Names = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """The basis of a system's decisions: a policy, rows, and the existing entities."""

    program: ir.Program
    state: State
    entities: Sequence[Entity]


def _as_it_is(found: T, *_: object) -> T:
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Misreading:
    """A wrong reading of a policy, rows and requests."""

    program: Callable[[ir.Program], ir.Program] = _as_it_is
    view: Callable[[View], View] = _as_it_is
    request: Callable[[Request, ir.Program], Request] = _as_it_is

    @property
    def is_of_policy(self) -> bool:
        """True if rows and requests are read rightly."""
        return self.view is _as_it_is and self.request is _as_it_is


def right_answer(reference: Reference, request: Request) -> bool:
    """The reference's answer; an invalid request is refused."""
    rule = reference.program.rules.get((request.resource.type, request.action))
    if rule is None:
        return False
    try:
        context = EvaluationContext(reference, request)
        return not context.unheld and context.holds(context.condition(rule))
    except (InvalidRequest, KeyError, ValueError):
        return False


# --- names -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Other entities and principals in the place of some, in rows and in requests; principals are texts with their kind."""

    entity: Callable[[Entity], Entity] = _as_it_is
    principal: Callable[[str], str] = _as_it_is

    def _bare(self, kind: str, name: str) -> str:
        return self.principal(f"{kind}:{name}").removeprefix(f"{kind}:")

    def state(self, state: State) -> State:
        """A state whose rows are about the others."""
        entity, principal, bare = self.entity, self.principal, self._bare

        def member(name: str) -> str:
            return principal(name) if name.startswith("group:") else bare("user", name)

        def assigned(row: Assignment) -> Assignment:
            scope = row.scope and entity(row.scope)
            return Assignment(principal=principal(row.principal), role=bare("role", row.role), scope=scope)

        return replace(
            state,
            members=[(bare("user", user), entity(of)) for user, of in state.members],
            memberships=[(member(user), bare("group", group)) for user, group in state.memberships],
            assignments=list(map(assigned, state.assignments)),
            grants=[replace(row, grantee=principal(row.grantee), entity=entity(row.entity)) for row in state.grants],
            owners=[(entity(owned), principal(owner)) for owned, owner in state.owners],
            service_admins=[bare("user", user) for user in state.service_admins],
            attributes=[
                replace(row, user=row.user and bare("user", row.user), entity=row.entity and entity(row.entity))
                for row in state.attributes
            ],
        )

    def request(self, request: Request) -> Request:
        """A request of and about the others."""
        return replace(
            request,
            user=self._bare("user", request.user),
            groups=tuple(self._bare("group", name) for name in request.groups),
            active_roles=request.active_roles and tuple(self._bare("role", name) for name in request.active_roles),
            resource=self.entity(request.resource),
            with_={slot: self.entity(one) for slot, one in request.with_.items()},
        )

    def misread(self) -> Misreading:
        """The mistake of a system that does not tell them apart."""
        return Misreading(
            view=lambda view: replace(view, state=self.state(view.state)), request=lambda asked, _: self.request(asked)
        )


def named(changed: Callable[[Names], Names]) -> Misreading:
    """A mistake by which names of entities are not told apart."""

    def entity(found: Entity) -> Entity:
        if not found.names:
            return found
        names = zip(found.names, changed(found.names), strict=True)
        return Entity(found.type, "/".join(name and new for name, new in names))

    return Renaming(entity=entity).misread()


def called(of: str, changed: Callable[[str], str]) -> Misreading:
    """A mistake by which names of principals of a kind are not told apart."""

    def principal(text: str) -> str:
        kind, _, name = text.partition(":")
        return f"{kind}:{changed(name)}" if kind == of else text

    return Renaming(principal=principal).misread()


# --- rows --------------------------------------------------------------------------------------------------------------


def rows(table: str, read: Callable[[View, Any], Iterable[object]]) -> Misreading:
    """A mistake by which each row of a table counts as some others."""

    def changed(view: View) -> View:
        found: Any = {table: [new for row in getattr(view.state, table) for new in read(view, row)]}
        return replace(view, state=replace(view.state, **found))

    return Misreading(view=changed)


def only(table: str, kept: Callable[[Any], bool]) -> Misreading:
    """A mistake by which only some rows of a table count."""
    return rows(table, lambda _, row: [row] if kept(row) else [])


def grants_also(more: Callable[[View, Grant], Iterable[Grant]], *effects: str) -> Misreading:
    """A mistake by which grants with these effects, or all, also count as other grants."""
    return rows("grants", lambda view, row: [row, *(more(view, row) if row.effect in effects or not effects else ())])


def counts_on(others: Callable[[View, Entity], Iterable[Entity]], *effects: str) -> Misreading:
    """A mistake by which grants also count on other entities."""
    return grants_also(lambda view, row: [replace(row, entity=entity) for entity in others(view, row.entity)], *effects)


def owned(others: Callable[[View, Entity], Iterable[Entity]]) -> Misreading:
    """A mistake by which owners of an entity also own other entities."""
    return rows("owners", lambda view, row: [row, *((entity, row[1]) for entity in others(view, row[0]))])


def both(first: Misreading, second: Misreading) -> Misreading:
    """Two mistakes about rows, or one about the policy and one about rows."""
    return replace(first, view=lambda view: second.view(first.view(view)))


def above(program: ir.Program, entity: Entity) -> list[Entity]:
    """The entities that contain one, the nearest last; none where ids are flat."""
    return [Entity.parse(key) for key in vocabulary(program).keys(entity)[:-1]]


def containers(view: View, entity: Entity) -> list[Entity]:
    """The entities that contain one."""
    return above(view.program, entity)


def container(view: View, entity: Entity) -> list[Entity]:
    """The entity that contains one, if there is one."""
    return above(view.program, entity)[-1:]


def below(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities that one contains."""
    for other in view.entities:
        is_deeper = other != entity and (other.id == entity.id or other.id.startswith(f"{entity.id}/"))
        if is_deeper and entity in above(view.program, other):
            yield other


def one_below(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities that one contains, and no other one within it."""
    return (other for other in below(view, entity) if container(view, other) == [entity])


def of_other_types(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities of other types in the same place with the same path."""
    types = view.program.entities
    own = types.get(entity.type)
    for other in types.values():
        if own is not None and other.name != own.name and (other.parent, other.single) == (own.parent, own.single):
            yield Entity(other.name, entity.id)


def _alike(view: View, entity: Entity) -> Iterator[Entity]:
    """The other entities of its type on its level."""
    for other in view.entities:
        if other != entity and (other.type, len(other.names)) == (entity.type, len(entity.names)):
            yield other


def continuing(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities whose names continue those of one."""
    return (other for other in _alike(view, entity) if other.id.startswith(entity.id))


def continued(view: View, entity: Entity) -> Iterator[Entity]:
    """The entities whose names those of one continue."""
    return (other for other in _alike(view, entity) if entity.id.startswith(other.id))


def everywhere(others: Callable[[View, Entity], Iterable[Entity]]) -> Misreading:
    """A mistake by which grants, ownership and membership also count on other entities."""
    members = rows("members", lambda view, row: [row, *((row[0], entity) for entity in others(view, row[1]))])
    return both(both(counts_on(others), owned(others)), members)


def shortened(text: str) -> str:
    """A name, or a principal, without the end by which it continues another one."""
    return text.removesuffix(CONTINUED)


def shortened_of(kind: str, text: str) -> str:
    """A principal, shortened if it is of a kind."""
    return shortened(text) if text.startswith(f"{kind}:") else text


def with_shortened_users(view: View) -> View:
    """A view in which what users hold is held by those whose names theirs continue."""
    return replace(view, state=Renaming(principal=lambda text: shortened_of("user", text)).state(view.state))


def users(view: View) -> list[str]:
    """The users that rows name, with their kind."""
    named = [row.grantee for row in view.state.grants] + [owner for _, owner in view.state.owners]
    found = {name for name in named if name.startswith("user:")}
    return sorted(found | {f"user:{user}" for user, _ in view.state.memberships if ":" not in user})


def is_overridden(view: View, row: Grant) -> bool:
    """Return whether a row denies a privilege that its grantee is granted further down."""
    return row.effect == "deny" and any(
        other.effect == "allow"
        and (other.grantee, other.privilege) == (row.grantee, row.privilege)
        and row.entity in above(view.program, other.entity)
        for other in view.state.grants
    )


def is_link(row: object) -> bool:
    """Return whether a row of memberships or assignments puts a group into a group, or gives a role to a role."""
    if isinstance(row, Assignment):
        return row.principal.startswith("role:")
    return isinstance(row, tuple) and str(row[0]).startswith("group:")


def third_groups_cut(view: View) -> View:
    """Without the links that start from a group in which there is another one."""
    groups = {f"group:{group}" for member, group in view.state.memberships if member.startswith("group:")}
    return only("memberships", lambda row: row[0] not in groups).view(view)


def third_roles_cut(view: View) -> View:
    """Without the links that start from a role that another one holds."""
    roles = {f"role:{row.role}" for row in view.state.assignments if is_link(row)}
    return only("assignments", lambda row: row.principal not in roles).view(view)


def reversed_link(_: View, row: Any) -> list[object]:
    """A row, the other way round if it is a link."""
    if not is_link(row):
        return [row]
    if isinstance(row, Assignment):
        return [replace(row, principal=f"role:{row.role}", role=row.principal.removeprefix("role:"))]
    return [(f"group:{row[1]}", row[0].removeprefix("group:"))]


# --- requests ----------------------------------------------------------------------------------------------------------


def objects_swapped(request: Request, _: ir.Program) -> Request:
    """A request whose resource and first `with` object of its type are swapped."""
    for slot, entity in request.with_.items():
        if entity.type == request.resource.type:
            return replace(request, resource=entity, with_={**request.with_, slot: request.resource})
    return request


# --- policies ----------------------------------------------------------------------------------------------------------


def conditions(change: Callable[[ir.Program, ir.Rule, ir.Formula], ir.Formula], *parts: str) -> Misreading:
    """A mistake by which other conditions are read: of the gate, `requires`, `each`, or all of them."""
    names = parts or ("gate", "requires", "each")

    def changed(program: ir.Program) -> ir.Program:
        rules = {}
        for key, rule in program.rules.items():
            formulas = {name: getattr(rule, name) for name in names}
            other: Any = {name: change(program, rule, part) for name, part in formulas.items() if part is not None}
            rules[key] = replace(rule, **other)
        return replace(program, rules=rules)

    return Misreading(program=changed)


def atoms(change: Callable[[ir.Program, ir.Atom], ir.Formula]) -> Misreading:
    """A mistake by which other atoms are read in every condition."""

    def changed(program: ir.Program, _: ir.Rule, formula: ir.Formula) -> ir.Formula:
        return replace_atoms(formula, lambda leaf: leaf if isinstance(leaf, ir.Can) else change(program, leaf))

    return conditions(changed)


def always(kind: type[object]) -> Misreading:
    """A mistake by which atoms of a kind hold for everybody."""
    return atoms(lambda _, atom: ir.ALWAYS if isinstance(atom, kind) else atom)


def never(kind: type[object]) -> Misreading:
    """A mistake by which atoms of a kind hold for nobody."""
    return atoms(lambda _, atom: ir.NEVER if isinstance(atom, kind) else atom)


def slots_hold(skipped: Callable[[str], bool], _: ir.Program, rule: ir.Rule, formula: ir.Formula) -> ir.Formula:
    """A condition in which atoms about the objects in some slots hold; only of rows with `with` objects."""
    if not rule.withs:
        return formula

    def read(atom: ir.Atom | ir.Can) -> ir.Formula:
        target = None if isinstance(atom, ir.Can) else getattr(atom, "target", None)
        return ir.ALWAYS if target is not None and skipped(target.slot) else atom

    return replace_atoms(formula, read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Rebuilder):
    """All parts are joined by `and`, or by `or`."""

    by: type[ir.And | ir.Or]

    def all_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        """As Algebra.all_of."""
        return self.by(parts=tuple(values))

    any_of = all_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(Rebuilder):
    """A mistake by which flags are required always or never."""

    required: bool

    def when(self, when: ir.When) -> ir.Formula:
        """As Algebra.when."""
        return self.fold(when.body) if self.required else ir.ALWAYS


def rebuilt(algebra: Rebuilder) -> Misreading:
    """A mistake by which conditions are read as an algebra rebuilds them."""
    return conditions(lambda _, __, formula: algebra.fold(formula))


def inheritance(kind: str) -> Misreading:
    """A mistake by which every privilege is inherited in another way."""
    other: Any = {"inheritance": kind}
    return Misreading(
        program=lambda program: replace(
            program,
            privileges={name: replace(p, inheritance=None) for name, p in program.privileges.items()},
            semantics=replace(program.semantics, **other),
        )
    )


def owners_hold(privileges: Callable[[ir.Program], Iterable[str]]) -> Misreading:
    """A mistake by which owners hold other privileges."""

    def changed(program: ir.Program) -> ir.Program:
        owner = program.semantics.owner
        other = None if owner is None else replace(owner, holds=tuple(privileges(program)))
        return replace(program, semantics=replace(program.semantics, owner=other))

    return Misreading(program=changed)


def implied(implied: Callable[[ir.Program, str], Iterable[str]]) -> Misreading:
    """A mistake by which privileges imply others."""
    return Misreading(
        program=lambda program: replace(
            program,
            privileges={n: replace(p, implies=tuple(implied(program, n))) for n, p in program.privileges.items()},
        )
    )


def without_default_grants(program: ir.Program) -> ir.Program:
    """A policy whose roles have no default grants."""
    return replace(program, roles={name: replace(role, grants=()) for name, role in program.roles.items()})


def nobody_is_everyone(program: ir.Program) -> ir.Program:
    """A policy without a group of every user."""
    return replace(program, semantics=replace(program.semantics, everyone=None))


def first_row_of_each_type(program: ir.Program) -> ir.Program:
    """A policy in which every row of a type has the condition of the first one."""
    first: dict[str, ir.Rule] = {}
    rules = {}

    def leaf(part: ir.Atom | ir.Can) -> ir.Formula:
        # The first row may refer to others, which would have its own condition.
        return replace_atoms(resolve_can(program, part), leaf) if isinstance(part, ir.Can) else part

    for key, rule in program.rules.items():
        model = first.setdefault(rule.entity, rule)
        same = model.withs == rule.withs and (model.each is None) == (rule.each is None)
        requires, gate = replace_atoms(model.requires, leaf), replace_atoms(model.gate, leaf)
        rules[key] = replace(rule, requires=requires, gate=gate) if same else rule
    return replace(program, rules=rules)


def any_privilege(program: ir.Program, atom: ir.Atom) -> ir.Formula:
    """An atom, for any privilege of its type."""
    if not isinstance(atom, ir.Has):
        return atom
    on = program.grantable_on(atom.target.type)
    return ir.Or(parts=tuple(replace(atom, privilege=name) for name in on)) if on else atom


def outermost(program: ir.Program, atom: ir.Atom) -> ir.Formula:
    """An atom, of the outermost level where its type nests."""
    if not isinstance(atom, ir.Has | ir.Owner | ir.Member) or atom.target.level != "nearest":
        return atom
    nests = program.entities[atom.target.type].nested
    return replace(atom, target=replace(atom.target, level="first")) if nests else atom


def administrators_may_all(_: ir.Program, __: ir.Rule, formula: ir.Formula) -> ir.Formula:
    """A condition, or being a service administrator."""
    parts = formula.parts if isinstance(formula, ir.Or) else (formula,)
    return formula if ir.ServiceAdmin() in parts or formula == ir.ALWAYS else ir.Or(parts=(*parts, ir.ServiceAdmin()))
