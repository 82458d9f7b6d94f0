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
from typing import NamedTuple

from privtab.base import Entity, Request, UnsupportedError, last_name
from privtab.ir import Atom, Below, Can, Has, Holds, Program, RequestAlgebra, Tool, Truth, on_entity
from privtab.reference import EvaluationContext, Reference
from privtab.state import State
from privtab_analysis.caller import Caller
from privtab_analysis.changes import (
    AddToGroup,
    Assign,
    Change,
    Changes,
    Give,
    RemoveDenial,
    SmallestChanges,
    apply,
    order,
)
from privtab_analysis.provenance import Provenance
from privtab_analysis.rights import Right, Rights, about, key_of, right_text, with_key

ROLE_SETS = 64
"""The most sets of additional roles that are tried."""


class Remedies(NamedTuple):
    """Sets of changes that turn a denial, fewest first: all smallest ones if `complete`, else some of them."""

    sets: tuple[tuple[Change, ...], ...]
    complete: bool = True


def remedies(reference: Reference, state: State, request: Request) -> Remedies:
    """The smallest sets of changes that turn a denial into an allow; one empty set if the request is allowed already.

    `state`: the one that the reference was built from.
    """
    Tool.TURNS.check(reference.program)
    if _is_unplaced(reference, request):
        return Remedies(())  # no change of what the caller holds turns it
    budget = SmallestChanges()
    unchanged = HypotheticalDecision(reference, state, request, (), budget)
    found: list[Changes] = []
    for roles in _role_sets(unchanged.roles(), budget):
        found += (
            HypotheticalDecision(reference, state, request, roles, budget).sets_with_extra(unchanged)
            if roles
            else unchanged.sets()
        )
    return Remedies(budget.in_order(found), complete=not budget.truncated)


def _is_unplaced(reference: Reference, request: Request) -> bool:
    """Return whether no row of the state places an object of a request."""
    reference.vocabulary.check(request)
    return bool(EvaluationContext(reference, request).unplaced)


def _role_sets(roles: tuple[Assign, ...], budget: SmallestChanges) -> Iterator[tuple[Assign, ...]]:
    """The sets of roles to try, smallest first."""
    all_sets = chain.from_iterable(combinations(roles, size) for size in range(len(roles) + 1))
    yield from islice(all_sets, ROLE_SETS)
    budget.truncated |= next(all_sets, None) is not None


class HypotheticalDecision(RequestAlgebra[frozenset[Changes]]):
    """One request whose caller has some additional roles or groups, and the changes that make its conditions hold."""

    def __init__(
        self,
        reference: Reference,
        state: State,
        request: Request,
        additions: Iterable[Assign | AddToGroup],
        budget: SmallestChanges | None = None,
    ) -> None:
        self.budget = SmallestChanges() if budget is None else budget
        reference.vocabulary.check(request)
        rule = reference.program.rules[request.resource.type, request.action]
        self.caller = Caller(
            reference, request.user, groups=request.groups, flags=request.flags, attributes=request.attributes
        )
        self.caller.about(request.objects(slot.name for slot in rule.withs))
        super().__init__(reference.program, request.flags, self.caller.types, self.caller.levels)
        self.condition = self.caller.condition(rule)
        owner = self.program.semantics.owner
        self.given_to: Mapping[str, str | None] = {
            "grants": _kind_for_caller(self.program, self.program.semantics.grantees),
            "owners": _kind_for_caller(self.program, () if owner is None else owner.kinds),
            "members": "user",
            "service_admins": "user",
            "assignments": None,  # sets of roles are tried one after another
            "": None,
        }
        """The principal that gets a right, by its table: the caller, or a new role or group of theirs; None if there is no way."""
        self.additions = tuple(additions)
        groups = [change.group for change in self.additions if isinstance(change, AddToGroup)]
        roles = [change for change in self.additions if isinstance(change, Assign)]
        if self.additions:
            held = [(change.role, None if change.scope is None else str(change.scope)) for change in roles]
            self.caller.gain(held, groups, denials=True)
        self.state = apply(state, request.user, self.additions)
        self.provenance = Provenance(self.caller, self.state)
        self.rights = Rights(self.program, self.caller.holdings.locations.keys)
        self._sets: dict[Atom, frozenset[Changes]] = {}
        self.reachable_atoms = tuple(
            dict.fromkeys(
                _ReachableAtoms(self.program, self.flags, self.types, self.caller.levels).fold(self.condition)
            )
        )
        self.candidates = dict(chain.from_iterable(map(self._giving, self.reachable_atoms)))
        """The rights that are tried, with the change that gives each."""

    def roles(self) -> tuple[Assign, ...]:
        """The roles that the condition requires and the caller does not hold."""
        found: dict[Assign, None] = {}
        if "user" not in self.program.semantics.assignees:
            return ()
        for atom in self.reachable_atoms:
            if isinstance(atom, Holds) and self.caller.why(atom) is None:
                path = self.caller.path(atom.target)
                if path:
                    found[self._assign(path)] = None
        return tuple(found)

    def _assign(self, path: tuple[str, ...]) -> Assign:
        """The assignment of the role with this path, named by its full path if only that occurs in the state."""
        full_name = path[-1].partition(":")[2]
        short_name = last_name(full_name)
        role_names = self.state.distinct(("assignments", "role"))
        role_names |= {
            grantee.removeprefix("role:")
            for grantee in self.state.column("grants", "grantee").names
            if grantee.startswith("role:")
        }
        role = full_name if full_name in role_names and short_name not in role_names else short_name
        declaration = self.program.roles.get(role)
        if declaration is None or not declaration.scopes:
            return Assign(role=role)
        scopes = [Entity.parse(key) for key in path if key.partition(":")[0] in declaration.scopes]
        return Assign(role=role, scope=scopes[0] if scopes else self._unrelated_scope(declaration.scopes[0]))

    def _unrelated_scope(self, type_: str) -> Entity:
        """A scope unrelated to the request, so that the role is held but has no other influence on the decision."""
        return Entity(type_, "/".join(["elsewhere"] * self.program.depth(type_)))

    def _right(self, atom: Atom) -> Right | None:
        """An atom on its own entity; None if the request has no such entity."""
        return about(on_entity(atom), lambda target: next(reversed(self.caller.path(target)), None))

    def _giving(self, atom: Atom) -> Iterator[tuple[Right, Change]]:
        """The rights that give an atom on its own entity, each alone unless there is a denial, and the changes that give them."""
        right = self._right(atom)
        for given in () if right is None else self.rights.on_itself(right):
            if given.kind.table not in self.given_to:
                raise UnsupportedError(f"what would give `{right_text(given)}` is not known to `explain`")
            to = self.given_to[given.kind.table]
            places = self.rights.granting(given) if isinstance(given, Has) else [given]
            if to is not None and places:
                above = tuple(Entity.parse(key_of(place)) for place in places[:-1])
                yield places[-1], Give(right=places[-1], also_at=above, to=to)

    def sets(self) -> frozenset[Changes]:
        """The smallest sets of changes that turn the denial, besides the additional roles and groups."""
        found = self.fold(self.condition)
        if not self.budget.truncated:
            return found
        return self.budget.of(map(self._minimise, self.budget.first(found)))

    def sets_with_extra(self, unchanged: HypotheticalDecision) -> Iterator[Changes]:
        """The smallest sets of changes, with the additional roles and groups. `unchanged`: the decision without them."""
        for changes in self.sets():
            # If sets were left out, one that suffices without the additional roles may be among them.
            if not (self.budget.truncated and unchanged.suffices(changes)):
                yield frozenset(self.additions) | changes

    def suffices(self, changes: Changes) -> bool:
        """Return whether the changes turn the denial."""

        def holds(atom: Atom) -> bool:
            return any(way <= changes for way in self.atom(atom))

        return Truth(self.program, self.flags, self.types, holds, self.caller.levels).fold(self.condition)

    def _minimise(self, changes: Changes) -> Changes:
        """A sufficient set of changes without unneeded ones."""
        for change in sorted(changes, key=order, reverse=True):
            if self.suffices(changes - {change}):
                changes -= {change}
        return changes

    def atom(self, atom: Atom) -> frozenset[Changes]:
        """The smallest sets of changes, besides additional roles, under which an atom holds."""
        if atom not in self._sets:
            self._sets[atom] = self.budget.of(self._atom(atom))
        return self._sets[atom]

    def all_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """The smallest sets under which all parts hold; only some of them if there are too many."""
        found = frozenset({frozenset[Change]()})
        for sets in values:
            found = self.budget.unions(found, sets)
        return found

    def any_of(self, values: Iterable[frozenset[Changes]]) -> frozenset[Changes]:
        """The smallest sets under which some part holds; only some of them if there are too many."""
        return self.budget.of(way for sets in values for way in sets)

    def _atom(self, atom: Atom) -> Iterator[Changes]:
        right = self._right(atom)
        if self.caller.why(atom) is not None:
            yield frozenset()
        elif right is not None:
            for place in (right, *self._below(atom, right)):
                yield from self._on_itself(place)

    def _below(self, atom: Atom, right: Right) -> Iterator[Right]:
        """The right on each entity below its own where a change may give it, if that is enough for the atom."""
        if not isinstance(atom, Below):
            return
        holdings = self.caller.holdings
        keys = {key for key in map(key_of, self.candidates) if key}
        keys.update(str(one.scope) for one in self.additions if isinstance(one, Assign) and one.scope is not None)
        if self.program.semantics.deny == "overrides":  # otherwise nothing that rows give is without effect
            keys.update(holdings.named())
        for key in sorted(keys):
            if key_of(right) in (holdings.locations.find(Entity.parse(key)) or ())[:-1]:
                yield with_key(right, key)

    def _on_itself(self, right: Right) -> Iterator[Changes]:
        """The sets of changes under which a right is held on its entity."""
        giving, removals = self.rights.giving(right), frozenset[Change]()
        if isinstance(right, Has):
            path = tuple(self.rights.keys(Entity.parse(key_of(right))))
            removals = frozenset(RemoveDenial(row=row) for row, _ in self.provenance.denied(right.privilege, path))
            if self.caller.granted(right.privilege, path):
                yield removals
        yield from (frozenset({self.candidates[given]}) for given in giving.firm & self.candidates.keys())
        yield from (removals | {self.candidates[given]} for given in giving.grants & self.candidates.keys())


def _kind_for_caller(program: Program, allowed: Collection[str]) -> str | None:
    """The principal that may be given a right for the caller: the caller, a new role, or a new group; None if there is no way."""
    semantics = program.semantics
    ways: dict[str, bool] = {
        "user": True,
        "role": "user" in semantics.assignees,
        "group": "state" in semantics.groups,
    }
    return next((kind for kind, possible in ways.items() if possible and kind in allowed), None)


class _ReachableAtoms(RequestAlgebra[Iterator[Atom]]):
    """Every atom that the condition reaches for the request's flags and types; may repeat."""

    def __init__(
        self, program: Program, flags: Collection[str], types: Mapping[str, str], levels: Mapping[str, int] | None
    ) -> None:
        super().__init__(program, flags, types, levels)
        self._visited: set[Can] = set()

    def atom(self, atom: Atom) -> Iterator[Atom]:
        yield atom

    def can(self, can: Can) -> Iterator[Atom]:
        if can not in self._visited:
            self._visited.add(can)
            yield from self.referred(can)

    def all_of(self, values: Iterable[Iterator[Atom]]) -> Iterator[Atom]:
        return chain.from_iterable(values)

    any_of = all_of
