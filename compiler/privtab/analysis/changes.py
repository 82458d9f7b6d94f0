"""What would turn a denial: every smallest set of changes to the state, exactly.

The changes, for one caller and one request: for each atom that the condition reaches, a grant to the caller on the atom's own
object, ownership of it, membership in it, the role itself, service administration; where owners hold the privilege, ownership
of its object too; and the removal of each row that denies them something asked for. A condition is monotone in all of them but
a role, which may bring denials: roles are tried one set after the other, the rest is an antichain of smallest sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from privtab.analysis.caller import Caller
from privtab.analysis.provenance import Provenance
from privtab.errors import UnsupportedError
from privtab.ir.formula import OfRequest
from privtab.ir.nodes import (
    RESOURCE,
    Atom,
    Has,
    Holds,
    Member,
    Owner,
    Self,
    ServiceAdmin,
)
from privtab.names import last_name
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import Assignment, Grant, State

LIMIT = 5_000
"""Sets of changes at one place before the question is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Give:
    """The caller is granted the privilege on the entity; a grant `also_at` one of those, above it, does the same here."""

    privilege: str
    entity: Entity
    also_at: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeOwner:
    """The caller becomes the owner of the entity."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The caller becomes a member of the entity."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The caller is assigned the role, within a scope where it has to have one."""

    role: str
    scope: Entity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToGroup:
    """The caller is added to the group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Appoint:
    """The caller becomes a service administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """A row that denies is removed."""

    row: Grant


Change: TypeAlias = Give | MakeOwner | Join | Assign | AddToGroup | Appoint | Lift
Changes: TypeAlias = frozenset[Change]


def change_text(change: Change, user: str) -> str:
    """What is to be done, in words."""
    match change:
        case Give():
            return f"grant {change.privilege} at {change.entity} to user:{user}"
        case MakeOwner():
            return f"make user:{user} owner of {change.entity}"
        case Join():
            return f"make user:{user} a member of {change.entity}"
        case Assign():
            within = "" if change.scope is None else f" within {change.scope}"
            return f"assign role:{change.role} to user:{user}{within}"
        case AddToGroup():
            return f"add user:{user} to group:{change.group}"
        case Appoint():
            return f"make user:{user} a service admin"
        case Lift():
            row = change.row
            return f"remove the denial of {row.privilege} at {row.entity} to {row.grantee}"
        case _:
            assert_never(change)


def change_kind(change: Change) -> str:
    """The kind of a change, for programs."""
    match change:
        case Give():
            return "grant"
        case MakeOwner():
            return "owner"
        case Join():
            return "member"
        case Assign():
            return "role"
        case AddToGroup():
            return "group"
        case Appoint():
            return "service admin"
        case Lift():
            return "remove denial"
        case _:
            assert_never(change)


def apply(state: State, user: str, changes: Iterable[Change]) -> State:
    """The state with the changes made for a user."""
    for change in changes:
        match change:
            case Give():
                grant = Grant(grantee=f"user:{user}", effect="allow", privilege=change.privilege, entity=change.entity)
                state = replace(state, grants=(*state.grants, grant))
            case MakeOwner():
                state = replace(state, owners=(*state.owners, (change.entity, f"user:{user}")))
            case Join():
                state = replace(state, members=(*state.members, (user, change.entity)))
            case Assign():
                assignment = Assignment(principal=f"user:{user}", role=change.role, scope=change.scope)
                state = replace(state, assignments=(*state.assignments, assignment))
            case AddToGroup():
                state = replace(state, memberships=(*state.memberships, (user, change.group)))
            case Appoint():
                state = replace(state, service_admins=(*state.service_admins, user))
            case Lift():
                state = replace(state, grants=tuple(grant for grant in state.grants if grant != change.row))
            case _:
                assert_never(change)
    return state


def ways(reference: Reference, state: State, request: Request) -> tuple[tuple[Change, ...], ...]:
    """The smallest sets of changes that turn a denial, fewest first; one empty set where the request is allowed.

    `state`: the reference's own. Raises UnsupportedError where there are more than can be listed.
    """
    found: list[Changes] = []
    for roles in _subsets(Turned(reference, state, request, ()).roles()):
        turned = Turned(reference, state, request, roles)
        found += [frozenset(roles) | rest for rest in turned.fold(turned.condition)]
    return in_order(antichain(found))


def in_order(found: Iterable[Changes]) -> tuple[tuple[Change, ...], ...]:
    """Sets of changes, fewest first."""
    ordered = [tuple(sorted(way, key=_order)) for way in found]
    return tuple(sorted(ordered, key=lambda way: (len(way), [_order(change) for change in way])))


def universe(reference: Reference, state: State, request: Request) -> tuple[Change, ...]:
    """Every change that `ways` thinks of for a request."""
    asked = Turned(reference, state, request, ()).roles()
    found = {c for roles in _subsets(asked) for c in Turned(reference, state, request, roles).thought_of()}
    return tuple(sorted(found | set(asked), key=_order))


class Turned(OfRequest[frozenset[Changes]]):
    """One request, its caller holding some more roles or being in more groups, and the changes that turn its conditions."""

    def __init__(
        self, reference: Reference, state: State, request: Request, more: Iterable[Assign | AddToGroup]
    ) -> None:
        reference.vocabulary.check(request)
        rule = reference.program.rules[request.resource.type, request.action]
        self.caller = Caller(reference, request.user, groups=request.groups, flags=request.flags)
        self.caller.about({RESOURCE: request.resource, **{w.name: request.with_[w.name] for w in rule.withs}})
        super().__init__(reference.program, request.flags, self.caller.types)
        self.condition = self.caller.condition(rule)
        more = tuple(more)
        for change in more:
            if isinstance(change, Assign):
                self._hold(change.role, change.scope)
                continue
            group = f"group:{change.group}"
            self.caller.groups |= {change.group}
            self.caller.principals |= {group}
            for assignment in state.assignments:
                if assignment.principal == group:
                    self._hold(assignment.role, assignment.scope)
        self.state = apply(state, request.user, more)
        self.provenance = Provenance(self.caller, self.state)
        self._known: dict[Atom, frozenset[Changes]] = {}
        self.reached = tuple(dict.fromkeys(_Reached(self.program, self.flags, self.types).fold(self.condition)))
        self.ownable = {change.entity for change in self.thought_of() if isinstance(change, MakeOwner)}
        self.givable = {(c.privilege, str(c.entity)): c for c in self.thought_of() if isinstance(c, Give)}

    def _hold(self, role: str, scope: Entity | None) -> None:
        self.caller.roles |= {role}
        if scope is None:
            self.caller.principals |= {f"role:{role}"}
        else:
            self.caller.scoped = (*self.caller.scoped, (f"role:{role}", str(scope)))

    def roles(self) -> tuple[Assign, ...]:
        """The roles that the condition asks for and the caller does not hold."""
        found: dict[Assign, None] = {}
        for atom in self.reached:
            if isinstance(atom, Holds) and self.caller.why_holds(atom.target) is None:
                path = self.caller.path(atom.target)
                if path:
                    found[self._assign(path)] = None
        return tuple(found)

    def _assign(self, path: tuple[str, ...]) -> Assign:
        """How the role with this path is assigned: by the name that the state knows it by, else by its last name."""
        whole = path[-1].partition(":")[2]
        last = last_name(whole)
        known = {a.role for a in self.state.assignments}
        known |= {g.grantee.removeprefix("role:") for g in self.state.grants if g.grantee.startswith("role:")}
        role = whole if whole in known and last not in known else last
        declared = self.program.roles.get(role)
        if declared is None or declared.scope is None:
            return Assign(role=role)
        above = [Entity.parse(key) for key in path if key.partition(":")[0] == declared.scope]
        return Assign(role=role, scope=above[0] if above else self._elsewhere(declared.scope))

    def _elsewhere(self, type_: str) -> Entity:
        """A scope that has nothing to do with the request: the role is held, and counts for nothing that is asked about."""
        return Entity(type_, "/".join(["elsewhere"] * self.program.depth(type_)))

    def thought_of(self) -> Iterator[Change]:
        """The changes for each atom that the condition reaches; may repeat."""
        owner = self.program.semantics.owner
        for atom in self.reached:
            match atom:
                case ServiceAdmin():
                    yield Appoint()
                    continue
                case Self() | Holds():
                    continue
                case Has() | Owner() | Member():
                    path = self.caller.path(atom.target)
                case _:
                    assert_never(atom)
            if not path:
                continue
            entity = Entity.parse(path[-1])
            match atom:
                case Has():
                    yield Give(privilege=atom.privilege, entity=entity, also_at=self._above(atom.privilege, path))
                    if owner is not None and atom.privilege in owner.holds:
                        yield MakeOwner(entity=entity)
                    yield from (Lift(row=grant) for grant, _ in self.provenance.denied(atom))
                case Owner():
                    yield MakeOwner(entity=entity)
                case Member():
                    yield Join(entity=entity)
                case _:
                    assert_never(atom)

    def _above(self, privilege: str, path: tuple[str, ...]) -> tuple[Entity, ...]:
        on = self.program.privileges[privilege].on
        above = (Entity.parse(key) for key in self.caller.looked_at(path)[:-1])
        return tuple(entity for entity in above if entity.type in on)

    def atom(self, atom: Atom) -> frozenset[Changes]:
        """The smallest sets of changes, further roles apart, under which an atom holds."""
        if atom not in self._known:
            self._known[atom] = antichain(self._atom(atom))
        return self._known[atom]

    def all_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """Those under which all hold."""
        product = frozenset({frozenset[Change]()})
        for sets in values:
            product = antichain(a | b for a in product for b in sets)
        return product

    def any_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """Those under which some holds."""
        return antichain(way for sets in values for way in sets)

    def _atom(self, atom: Atom) -> Iterator[Changes]:
        if self.caller.why(atom) is not None:
            yield frozenset()
            return
        match atom:
            case Self() | Holds():
                return
            case ServiceAdmin():
                yield frozenset({Appoint()})
                return
            case Has() | Owner() | Member():
                path = self.caller.path(atom.target)
            case _:
                assert_never(atom)
        if not path:
            return
        match atom:
            case Has():
                yield from self._has(atom, path)
            case Owner():
                yield frozenset({MakeOwner(entity=Entity.parse(path[-1]))})
            case Member():
                yield frozenset({Join(entity=Entity.parse(path[-1]))})
            case _:
                assert_never(atom)

    def _has(self, atom: Has, path: tuple[str, ...]) -> Iterator[Changes]:
        looked_at = self.caller.looked_at(path)
        owner = self.program.semantics.owner
        if owner is not None and atom.privilege in owner.holds:
            entities = (Entity.parse(key) for key in looked_at)
            yield from (frozenset({MakeOwner(entity=entity)}) for entity in entities if entity in self.ownable)
        lifted = frozenset[Change](Lift(row=grant) for grant, _ in self.provenance.denied(atom))
        if self.caller.granted(atom.privilege, path) is not None:
            yield lifted
        for key in looked_at:
            give = self.givable.get((atom.privilege, key))
            if give is not None:
                yield lifted | {give}


def antichain(sets: Iterable[Changes]) -> frozenset[Changes]:
    """The sets that hold no other."""
    kept: list[Changes] = []
    for candidate in sorted(set(sets), key=len):
        if not any(known <= candidate for known in kept):
            kept.append(candidate)
            if len(kept) > LIMIT:
                raise UnsupportedError(f"more than {LIMIT} sets of changes would turn the answer")
    return frozenset(kept)


def _subsets(roles: tuple[Assign, ...]) -> Iterator[tuple[Assign, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(roles, n) for n in range(len(roles) + 1))


_RANK: Mapping[str, int] = {
    kind: n for n, kind in enumerate(("remove denial", "grant", "role", "group", "owner", "member", "service admin"))
}


def _order(change: Change) -> tuple[int, str]:
    return _RANK[change_kind(change)], change_text(change, "")


class _Reached(OfRequest[Iterator[Atom]]):
    """Every atom that a request of this kind asks about; may repeat."""

    def atom(self, atom: Atom) -> Iterator[Atom]:
        yield atom

    def all_of(self, values: Iterable[Iterator[Atom]]) -> Iterator[Atom]:
        return itertools.chain.from_iterable(values)

    any_of = all_of
