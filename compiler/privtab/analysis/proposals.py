"""Proposals for a denied request: changes of what the caller holds, roles and groups among them, least privilege first.

Besides the changes of `analysis.changes`, proposals try each role and each group that a relevant row of the state
names. Every proposed set of changes turns the decision, and none of its changes can be left out. Sets are sorted by
what they give: the permissions that anybody gains, on the entities that the state names and those of the request, counted by
`state_diff`. If the state has more than EXACT rows, the rows about the roles and groups are counted instead.

A certification reports a direct grant to a user as a finding: of two sets that give as much, the one with a role comes first, and
before a direct grant that would be first comes the same grant to a new role that the caller is assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from privtab.analysis.changes import (
    AddToGroup,
    Assign,
    Change,
    Changes,
    Give,
    SmallestChanges,
    apply,
    change_kind,
)
from privtab.analysis.state_diff import state_diff
from privtab.analysis.turns import HypotheticalDecision, Ways
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Has, Owner
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import State

EXACT = 5_000
"""The largest number of rows in a state for which the gain of a proposal is computed exactly."""
MAX_TRIED = 24
"""How many roles and groups are tried."""
QUESTIONS = 20_000
"""How many decisions are compared for all proposals together; those that are left are not measured."""
MAX_MEASURED = 60
"""How many proposals are measured, those that make nobody an owner or an administrator first."""
MAX_MEASURED_IF_TRUNCATED = 6
"""The same if there are too many to list."""
_BY_KIND: Mapping[str, int] = {
    kind: number
    for number, kind in enumerate(("role", "group", "grant", "remove denial", "member", "owner", "service admin"))
}
"""Of two proposals that give as much, the one whose changes come first here is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A smallest set of changes that turns a denial into an allow.

    `gains`: how many permissions anybody has then but not now, including the requested one; for large states, how many rows are
    about the roles and groups; None if it was not measured. `exact`: whether permissions were counted. `direct`: whether a
    privilege is granted to the user directly. `new_role`: the grants are to a new role, which the caller is assigned.
    """

    changes: tuple[Change, ...]
    gains: int | None = None
    exact: bool = False
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
    measure = _Measure(unchanged, request.user)
    limit = MAX_MEASURED_IF_TRUNCATED if budget.truncated else MAX_MEASURED
    result = []
    for number, changes in enumerate(sorted(ways, key=_hides_much)):
        gains, exact = measure.gains(changes) if number < limit else (None, False)
        result.append(Proposal(changes=changes, gains=gains, exact=exact, direct=_is_direct(changes)))
    result.sort(key=_rank)
    semantics = reference.program.semantics
    new_role_helps = "role" in semantics.grantees and "user" in semantics.assignees
    if result and result[0].direct and not reference.program.roles and new_role_helps:
        result.insert(0, replace(result[0], direct=False, new_role=True))
    return tuple(result), turns.complete and not budget.truncated and not below


def _is_direct(changes: tuple[Change, ...]) -> bool:
    return any(isinstance(change, Give) and change.table == "grants" and change.to == "user" for change in changes)


def _hides_much(changes: tuple[Change, ...]) -> bool:
    """Whether numbers of rows do not show how much the changes give: what an owner or an administrator may do."""
    return any(change_kind(change) in ("owner", "service admin") for change in changes)


def _rank(proposal: Proposal) -> tuple[bool, bool, int, int, int]:
    """The sort key: the least gain, then the kinds of changes, then the fewest."""
    kinds = max((_BY_KIND[change_kind(change)] for change in proposal.changes), default=0)
    hidden = not proposal.exact and _hides_much(proposal.changes)
    return proposal.gains is None, hidden, proposal.gains or 0, kinds, len(proposal.changes)


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
        if "user" not in reference.program.semantics.assignees:
            break
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
    for atom in decision.reachable_atoms:
        if not isinstance(atom, Has | Owner):
            continue
        path = caller.path(atom.target)
        if not path:
            continue
        if isinstance(atom, Owner):
            yield from holdings.owners(path[-1])
            continue
        for key in caller.relevant_keys(atom.privilege, path):
            yield from holdings.grants_on(atom.privilege, key)[0]
            if atom.privilege in program.owner_privileges:
                yield from holdings.owners(key)
            for role in program.roles.values():
                if atom.privilege in dict(role.grants).get(key.partition(":")[0], ()):
                    yield f"role:{role.name}"


class _Measure:
    """Measures what sets of changes give, to whomever: the permissions that `state_diff` finds."""

    def __init__(self, decision: HypotheticalDecision, user: str) -> None:
        self._program, self._state, self._user = decision.program, decision.state, user
        self._objects = [Entity.parse(keys[-1]) for keys in decision.caller.keys.values() if keys]
        state = self._state
        self._counts = sum(map(len, (state.grants, state.assignments, state.owners, state.members))) <= EXACT
        self._left = QUESTIONS

    def gains(self, changes: tuple[Change, ...]) -> tuple[int | None, bool]:
        """How much the changes give, and whether exactly; None if there is no time left."""
        if not self._counts:
            principals = {f"role:{change.role}" for change in changes if isinstance(change, Assign)}
            principals |= {f"group:{change.group}" for change in changes if isinstance(change, AddToGroup)}
            rows = self._state.column("grants", "grantee").where(principals)
            return self._state.column("grants", "effect").take(rows).count("allow") + len(changes), False
        if self._left <= 0:
            return None, False
        after = apply(self._state, self._user, changes)
        found = state_diff(self._program, self._state, after, most=self._left, entities=self._objects, causes=False)
        self._left -= found.decided
        return found.count(gained=True), not found.undecided
