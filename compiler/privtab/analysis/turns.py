"""The smallest sets of changes to the state that would turn a denial into an allow; only some if there are too many.

The changes are for one caller and one request. For each atom that the condition reaches: a grant to the caller on the
atom's own object, ownership of it, membership in it, the role itself, or service administration; if owners hold the
privilege, also ownership of its object; and the removal of each denial of a required privilege. A condition is monotone
in all of these but roles, which may bring denials. So sets of roles are tried one after another, and the rest is an
antichain of smallest sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, combinations, islice
from typing import NamedTuple, assert_never

from privtab.analysis.caller import Caller
from privtab.analysis.changes import (
    AddToGroup,
    Appoint,
    Assign,
    Change,
    Changes,
    Give,
    Join,
    Lift,
    MakeOwner,
    Smallest,
    apply,
    order,
)
from privtab.analysis.provenance import Provenance
from privtab.ir.formula import RequestAlgebra, Truth
from privtab.ir.nodes import (
    RESOURCE,
    Atom,
    Can,
    Has,
    Holds,
    Member,
    Owner,
    Program,
    Self,
    ServiceAdmin,
)
from privtab.names import last_name, path_of
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import State

ROLE_SETS = 64
"""How many sets of additional roles are tried."""


class Ways(NamedTuple):
    """Sets of changes that turn a denial, fewest first: all smallest ones if `complete`, else some of them."""

    sets: tuple[tuple[Change, ...], ...]
    complete: bool = True


def ways(reference: Reference, state: State, request: Request) -> Ways:
    """The smallest sets of changes that turn a denial into an allow; one empty set if the request is allowed already.

    `state`: the one that the reference was built from.
    """
    budget = Smallest()
    alone = HypotheticalDecision(reference, state, request, (), budget)
    found: list[Changes] = []
    for roles in _role_sets(alone.roles(), budget):
        found += (
            HypotheticalDecision(reference, state, request, roles, budget).sets_with_extra(alone)
            if roles
            else alone.sets()
        )
    return Ways(budget.in_order(found), complete=not budget.cut)


def universe(reference: Reference, state: State, request: Request) -> tuple[Change, ...]:
    """Every change that `ways` considers for a request."""
    asked = HypotheticalDecision(reference, state, request, ()).roles()
    found = {
        c
        for roles in _role_sets(asked, Smallest())
        for c in HypotheticalDecision(reference, state, request, roles).candidate_changes()
    }
    return tuple(sorted(found | set(asked), key=order))


def _role_sets(roles: tuple[Assign, ...], budget: Smallest) -> Iterator[tuple[Assign, ...]]:
    """The sets of roles to try, smallest first."""
    every = chain.from_iterable(combinations(roles, size) for size in range(len(roles) + 1))
    yield from islice(every, ROLE_SETS)
    budget.cut |= next(every, None) is not None


class HypotheticalDecision(RequestAlgebra[frozenset[Changes]]):
    """One request whose caller has some additional roles or groups, and the changes that make its conditions hold."""

    def __init__(
        self,
        reference: Reference,
        state: State,
        request: Request,
        more: Iterable[Assign | AddToGroup],
        budget: Smallest | None = None,
    ) -> None:
        self.budget = Smallest() if budget is None else budget
        reference.vocabulary.check(request)
        rule = reference.program.rules[request.resource.type, request.action]
        self.caller = Caller(reference, request.user, groups=request.groups, flags=request.flags)
        self.caller.about({RESOURCE: request.resource, **{w.name: request.with_[w.name] for w in rule.withs}})
        super().__init__(reference.program, request.flags, self.caller.types)
        self.condition = self.caller.condition(rule)
        self.more = tuple(more)
        for change in self.more:
            if isinstance(change, Assign):
                self._hold(change.role, change.scope)
                continue
            group = f"group:{change.group}"
            self.caller.groups |= {change.group}
            self.caller.principals |= {group}
            for row in state.column("assignments", "principal").where([group]):
                self._hold(state.assignments[row].role, state.assignments[row].scope)
        self.state = apply(state, request.user, self.more)
        self.provenance = Provenance(self.caller, self.state)
        self._known: dict[Atom, frozenset[Changes]] = {}
        self.reached = tuple(dict.fromkeys(_Reached(self.program, self.flags, self.types).fold(self.condition)))
        self.ownable = {change.entity for change in self.candidate_changes() if isinstance(change, MakeOwner)}
        self.givable = {(c.privilege, str(c.entity)): c for c in self.candidate_changes() if isinstance(c, Give)}

    def _hold(self, role: str, scope: Entity | None) -> None:
        self.caller.roles |= {role}
        if scope is None:
            self.caller.principals |= {f"role:{role}"}
        else:
            self.caller.scoped = (*self.caller.scoped, (f"role:{role}", str(scope)))

    def roles(self) -> tuple[Assign, ...]:
        """The roles that the condition requires and the caller does not hold."""
        found: dict[Assign, None] = {}
        for atom in self.reached:
            if isinstance(atom, Holds) and self.caller.why_holds(atom.target) is None:
                path = self.caller.path(atom.target)
                if path:
                    found[self._assign(path)] = None
        return tuple(found)

    def _assign(self, path: tuple[str, ...]) -> Assign:
        """The assignment of the role with this path, named by its full path if only that occurs in the state."""
        whole = path_of(path[-1])
        last = last_name(whole)
        known = self.state.distinct(("assignments", "role"))
        known |= {
            g.removeprefix("role:") for g in self.state.column("grants", "grantee").names if g.startswith("role:")
        }
        role = whole if whole in known and last not in known else last
        declared = self.program.roles.get(role)
        if declared is None or declared.scope is None:
            return Assign(role=role)
        above = [Entity.parse(key) for key in path if key.partition(":")[0] == declared.scope]
        return Assign(role=role, scope=above[0] if above else self._elsewhere(declared.scope))

    def _elsewhere(self, type_: str) -> Entity:
        """A scope unrelated to the request, so that the role is held but has no other influence on the decision."""
        return Entity(type_, "/".join(["elsewhere"] * self.program.depth(type_)))

    def candidate_changes(self) -> Iterator[Change]:
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

    def sets(self) -> frozenset[Changes]:
        """The smallest sets of changes that turn the denial, besides the additional roles and groups."""
        found = self.fold(self.condition)
        if not self.budget.cut:
            return found
        return self.budget.of(map(self._minimise, self.budget.first(found)))

    def sets_with_extra(self, alone: HypotheticalDecision) -> Iterator[Changes]:
        """The smallest sets of changes, with the additional roles and groups. `alone`: the decision without them."""
        for rest in self.sets():
            # If sets were left out, one that suffices without the additional roles may be among them.
            if not (self.budget.cut and alone.suffices(rest)):
                yield frozenset(self.more) | rest

    def suffices(self, changes: Changes) -> bool:
        """Whether the changes turn the denial."""

        def holds(atom: Atom) -> bool:
            return any(way <= changes for way in self.atom(atom))

        return Truth(self.program, self.flags, self.types, holds).fold(self.condition)

    def _minimise(self, changes: Changes) -> Changes:
        """A sufficient set of changes without those that are not needed."""
        for change in sorted(changes, key=order, reverse=True):
            if self.suffices(changes - {change}):
                changes -= {change}
        return changes

    def atom(self, atom: Atom) -> frozenset[Changes]:
        """The smallest sets of changes, besides additional roles, under which an atom holds."""
        if atom not in self._known:
            self._known[atom] = self.budget.of(self._atom(atom))
        return self._known[atom]

    def all_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """The smallest sets under which all parts hold; only some of them if there are too many."""
        found = frozenset({frozenset[Change]()})
        for sets in values:
            found = self.budget.both(found, sets)
        return found

    def any_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """The smallest sets under which some part holds; only some of them if there are too many."""
        return self.budget.of(way for sets in values for way in sets)

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


class _Reached(RequestAlgebra[Iterator[Atom]]):
    """Every atom that the condition reaches for the request's flags and types; may repeat."""

    def __init__(self, program: Program, flags: Collection[str], types: Mapping[str, str]) -> None:
        super().__init__(program, flags, types)
        self._seen: set[Can] = set()

    def atom(self, atom: Atom) -> Iterator[Atom]:
        yield atom

    def can(self, can: Can) -> Iterator[Atom]:
        if can not in self._seen:
            self._seen.add(can)
            yield from self.referred(can)

    def all_of(self, values: Iterable[Iterator[Atom]]) -> Iterator[Atom]:
        return chain.from_iterable(values)

    any_of = all_of
