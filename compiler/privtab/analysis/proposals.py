"""Proposals for a denied request: roles that have what is missing and groups first, least privilege first.

Besides the changes of `analysis.changes`, proposals try each role and each group that a relevant row of the state
names. Every proposed set of changes turns the decision, and none of its changes can be left out. Sets are sorted by
what else they would allow: the operations that the caller gains, on the entities that the state names and those of the
request. If the state has more than EXACT rows, the rows about the roles and groups are counted instead.

A certification reports a direct grant to a user as a finding, so it is never proposed first: if nothing else would do,
the grant is to a new role that the caller is assigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from privtab.analysis.changes import (
    AddToGroup,
    Assign,
    Change,
    Changes,
    GrantChange,
    RemoveDenial,
    SmallestChanges,
    apply,
)
from privtab.analysis.turns import HypotheticalDecision, Ways
from privtab.analysis.what_can import what_can
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Has, Owner
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import State

EXACT = 5_000
"""The largest number of rows in a state for which the gain of a proposal is computed exactly."""
MAX_TRIED = 24
"""How many roles and groups are tried, and how many proposals are measured."""
MAX_MEASURED_IF_TRUNCATED = 6
"""How many proposals are measured if there are too many to list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A smallest set of changes that turns a denial into an allow.

    `gains`: how many operations the caller could do then but not now, including the requested one; for large states,
    how many rows are about the roles and groups; None if it was not measured. `direct`: whether a privilege is granted
    to the user directly. `new_role`: the grants are to a new role, which the caller is assigned.
    """

    changes: tuple[Change, ...]
    gains: int | None = None
    direct: bool = False
    new_role: bool = False


def proposals(reference: Reference, state: State, request: Request, turns: Ways) -> tuple[tuple[Proposal, ...], bool]:
    """Return proposals for a denial, best first, and whether they are complete. `turns`: from `turns.ways`."""
    budget = SmallestChanges()
    unchanged = HypotheticalDecision(reference, state, request, (), budget)
    found: list[Changes] = [frozenset(changes) for changes in turns.sets]
    for candidate in _candidates(reference, unchanged):
        found += HypotheticalDecision(reference, state, request, (candidate,), budget).sets_with_extra(unchanged)
    ways = budget.in_order(found)
    below = uses_below(reference.program)
    # With attributes, what else a change allows depends on those of other requests; `what-can` takes no flat ids.
    unmeasured = reference.program.attributes or reference.program.flat
    measure = None if unmeasured else _Measure(reference, state, request)
    limit = MAX_MEASURED_IF_TRUNCATED if budget.truncated else MAX_TRIED
    result = [
        Proposal(
            changes=changes,
            gains=measure.gains(changes) if measure is not None and index < limit else None,
            direct=_is_direct(changes),
        )
        for index, changes in enumerate(sorted(ways, key=_is_direct))
    ]
    result.sort(key=_rank)
    if result and result[0].direct and not reference.program.roles:
        result.insert(0, replace(result[0], direct=False, new_role=True))
    return tuple(result), turns.complete and not budget.truncated and not below


def _is_direct(changes: tuple[Change, ...]) -> bool:
    return any(isinstance(change, GrantChange) for change in changes)


def _rank(proposal: Proposal) -> tuple[bool, bool, bool, float, int]:
    """The sort key: direct grants last; then changes that affect only the caller first; then the least gain."""
    affects_others = any(
        isinstance(change, RemoveDenial) and change.row.grantee.startswith(("role:", "group:"))
        for change in proposal.changes
    )
    gains = float("inf") if proposal.gains is None else proposal.gains
    return proposal.direct, affects_others, proposal.gains is None, gains, len(proposal.changes)


def _candidates(reference: Reference, decision: HypotheticalDecision) -> list[Assign | AddToGroup]:
    """The roles and groups that relevant rows of the state name, and groups that hold such roles; at most MOST."""
    caller = decision.caller
    principals = set(_relevant_principals(reference, decision))
    caller_roles = {f"role:{role}" for role in caller.roles}
    roles = {name for name in principals - caller_roles if name.startswith("role:")}
    groups = {name for name in principals if name.startswith("group:")}
    rows = decision.state.column("assignments", "role").where(role.removeprefix("role:") for role in roles)
    holders = map(str, decision.state.column("assignments", "principal").take(rows))
    groups |= {holder for holder in holders if holder.startswith("group:")}
    found: list[Assign | AddToGroup] = []
    for name in sorted(roles):
        role = name.removeprefix("role:")
        declaration = reference.program.roles.get(role)
        if declaration is None or declaration.scope is None:
            found.append(Assign(role=role))
            continue
        scope_keys = {
            key for keys in caller.keys.values() for key in keys if key.partition(":")[0] == declaration.scope
        }
        found += [Assign(role=role, scope=Entity.parse(key)) for key in sorted(scope_keys)]
    if "state" in reference.program.semantics.groups:
        found += [AddToGroup(group=name.removeprefix("group:")) for name in sorted(groups - caller.principals)]
    return found[:MAX_TRIED]


def _relevant_principals(reference: Reference, decision: HypotheticalDecision) -> Iterator[str]:
    """The principals that hold something that the condition requires."""
    program, caller, holdings = reference.program, decision.caller, reference.holdings
    owner = program.semantics.owner
    for atom in decision.reachable_atoms:
        if not isinstance(atom, Has | Owner):
            continue
        path = caller.path(atom.target)
        if not path:
            continue
        if isinstance(atom, Owner):
            yield from holdings.owners(path[-1])
            continue
        for key in caller.relevant_keys(path):
            yield from holdings.grants_on(atom.privilege, key)[0]
            if owner is not None and atom.privilege in owner.holds:
                yield from holdings.owners(key)
            for role in program.roles.values():
                if atom.privilege in dict(role.grants).get(key.partition(":")[0], ()):
                    yield f"role:{role.name}"


class _Measure:
    """Measures what sets of changes would allow besides the request."""

    def __init__(self, reference: Reference, state: State, request: Request) -> None:
        self.reference = reference
        self.state = state
        self.request = request
        self.exact = sum(map(len, (state.grants, state.assignments, state.owners, state.members))) <= EXACT
        self._before = self._allowed(reference, state) if self.exact else frozenset[tuple[str, Entity, bool]]()

    def gains(self, changes: tuple[Change, ...]) -> int:
        """How much the changes give."""
        if not self.exact:
            principals = {f"role:{change.role}" for change in changes if isinstance(change, Assign)}
            principals |= {f"group:{change.group}" for change in changes if isinstance(change, AddToGroup)}
            rows = self.state.column("grants", "grantee").where(principals)
            return self.state.column("grants", "effect").take(rows).count("allow") + len(changes)
        state = apply(self.state, self.request.user, changes)
        return len(self._allowed(Reference(self.reference.program, state), state) - self._before)

    def _allowed(self, reference: Reference, state: State) -> frozenset[tuple[str, Entity, bool]]:
        request = self.request
        objects = [request.resource, *request.with_.values()]
        # An object without a last name does not exist yet: what may be done on it is not asked.
        known = [
            object_
            for object_ in objects
            if not object_.id.endswith("/")
            and len(reference.vocabulary.keys(object_)) == len(reference.vocabulary.chains[object_.type])
        ]
        return frozenset(
            (operation.operation, operation.resource, operation.unnamed)
            for entity in (None, *known)
            for operation in what_can(
                reference, state, request.user, entity, flags=request.flags, groups=request.groups
            ).allowed
        )
