"""Explains the decision on one request: each minimal set with its rows, and the changes that would turn a denial, least privilege first.

Besides the changes of `analysis.changes`, proposals try each role and each group that a relevant row of the state
names. Every proposed set of changes turns the decision, and none of its changes can be left out. Sets are sorted by
what they give: the permissions that anybody gains, on the entities that the state and the request name, counted by
`state_diff`. If the state has more than EXACT rows, the rows about the roles and groups are counted instead.

A certification reports a direct grant to a user as a finding: of two sets that give as much, the one with a role comes first, and
before a direct grant that would be first comes the same grant to a new role that the caller is assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from privtab.base import NOT_SET, Decision, Entity, Request, dataclass
from privtab.ir import ByType, Compare, Feature, Has, Leaf, Owner, Rule, Self
from privtab.reference import EvaluationContext, Reference
from privtab.state import Places, State
from privtab_analysis.caller import listing
from privtab_analysis.changes import AddToGroup, Assign, Change, Changes, Give, SmallestChanges, apply, change_kind
from privtab_analysis.provenance import Chain, Provenance
from privtab_analysis.turns import HypotheticalDecision, Remedies, remedies

EXACT = 5_000
"""The largest number of rows in a state for which the gain of a proposal is computed exactly."""
MAX_TRIED = 24
"""The most roles and groups that are tried."""
QUESTIONS = 20_000
"""The most decisions that are compared for all proposals together; further proposals are not measured."""
MAX_MEASURED = 60
"""The most proposals that are measured; proposals that make nobody an owner or an administrator come first."""
MAX_MEASURED_IF_TRUNCATED = 6
"""The same if there are too many to list."""
_BY_KIND: Mapping[str, int] = {
    kind: number
    for number, kind in enumerate(("role", "group", "grant", "remove denial", "member", "owner", "service admin"))
}
"""The order of changes for proposals that give as much: the proposal whose changes come first is better."""


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


def proposals(
    reference: Reference, state: State, request: Request, turns: Remedies
) -> tuple[tuple[Proposal, ...], bool]:
    """Return proposals for a denial, best first, and whether they are complete. `turns`: from `turns.ways`."""
    budget = SmallestChanges()
    unchanged = HypotheticalDecision(reference, state, request, (), budget)
    found: list[Changes] = [frozenset(changes) for changes in turns.sets]
    for candidate in _candidates(reference, unchanged):
        found += HypotheticalDecision(reference, state, request, (candidate,), budget).sets_with_extra(unchanged)
    ways = budget.in_order(found)
    below = Feature.BELOW.used_by(reference.program)
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
    """Return whether numbers of rows do not show how much the changes give: the rights of an owner or an administrator."""
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
        if declaration is None or not declaration.scopes:
            found.append(Assign(role=role))
            continue
        scope_keys = {
            key for keys in caller.keys.values() for key in keys if key.partition(":")[0] in declaration.scopes
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
    """Measures the gains from sets of changes, for anybody: the permissions that `state_diff` finds."""

    def __init__(self, decision: HypotheticalDecision, user: str) -> None:
        self._program, self._state, self._user = decision.program, decision.state, user
        self._objects = [Entity.parse(keys[-1]) for keys in decision.caller.keys.values() if keys]
        state = self._state
        self._counts = sum(map(len, (state.grants, state.assignments, state.owners, state.members))) <= EXACT
        self._left = QUESTIONS

    def gains(self, changes: tuple[Change, ...]) -> tuple[int | None, bool]:
        """The number of permissions that the changes give, and whether it is exact; None if there is no time left."""
        if not self._counts:
            principals = {f"role:{change.role}" for change in changes if isinstance(change, Assign)}
            principals |= {f"group:{change.group}" for change in changes if isinstance(change, AddToGroup)}
            rows = self._state.column("grants", "grantee").where(principals)
            return self._state.column("grants", "effect").take(rows).count("allow") + len(changes), False
        if self._left <= 0:
            return None, False
        from privtab_analysis.state_diff import state_diff  # for denials alone: loading it takes a while

        after = apply(self._state, self._user, changes)
        found = state_diff(self._program, self._state, after, most=self._left, entities=self._objects, causes=False)
        self._left -= found.decided
        return found.count(gained=True), not found.undecided


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One atom of a minimal set: whether it holds, where, through which principal, and the chains of rows behind it.

    `denied` names the denials that block the atom, and `denied_by` has their chains. For a denied atom, `because` may
    still hold the grants that would count without the denial. `fixed`: the atom does not depend on what the caller holds.
    """

    atom: str
    holds: bool
    fixed: bool = False
    on: str | None = None
    through: str | None = None
    because: tuple[Chain, ...] = ()
    denied: tuple[str, ...] = ()
    denied_by: tuple[Chain, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExplanation:
    """The decision on a request, its rule, every minimal set of the rule, and the changes that would turn a denial into an allow.

    `turns`: the smallest sets of changes, fewest first; empty for an allow, and if no change leads to one. `proposals`:
    these sets and sets with roles and groups, least privilege first. `sets_complete` and `turns_complete` (also about
    `proposals`): whether all are listed, or only some because there are too many.

    If the request names active roles: `inactive` has the roles that the user holds and that do not count for it, `activating` the
    fewest inactive roles with which a denied request would be allowed; then no other changes are worked out. `demanding`: if the request
    is denied, the fewest of its flags, or nearly, without which it would be allowed.
    """

    request: Request
    decision: Decision
    rule: Rule
    sets: tuple[tuple[Part, ...], ...]
    turns: tuple[tuple[Change, ...], ...] = ()
    proposals: tuple[Proposal, ...] = ()
    sets_complete: bool = True
    turns_complete: bool = True
    inactive: tuple[str, ...] = ()
    activating: tuple[str, ...] = ()
    demanding: tuple[str, ...] = ()


def explain(
    reference: Reference, request: Request, state: State | None = None, places: Places = Places.NONE
) -> RequestExplanation:
    """Explain one request. Raises InvalidRequest if it uses names that the policy does not know.

    `state`: the one that the reference was built from. Without it the explanation has no rows and no changes.
    """
    explanation = reference.explanation(request)
    rows = None if state is None else Provenance(explanation.evaluation, state, places)
    evaluation = explanation.evaluation
    minimal_sets = listing(evaluation, explanation.rule, evaluation.condition(explanation.rule))
    turns, complete = Remedies(()), True
    proposed: tuple[Proposal, ...] = ()
    inactive = _inactive(evaluation)
    if state is not None and not explanation.allowed and evaluation.active is not None:
        complete = False  # changes are not worked out for some of the caller's roles
    elif state is not None and not explanation.allowed:
        turns = remedies(reference, state, request)
        proposed, complete = proposals(reference, state, request, turns)
    return RequestExplanation(
        request=request,
        decision=Decision(allowed=explanation.allowed, context=explanation.context()),
        rule=explanation.rule,
        sets=tuple(tuple(_part(evaluation, rows, atom) for atom in atoms) for atoms in minimal_sets.sets),
        turns=turns.sets,
        proposals=proposed,
        sets_complete=minimal_sets.complete,
        turns_complete=complete,
        inactive=inactive,
        activating=() if explanation.allowed else _activating(reference, request, inactive),
        demanding=() if explanation.allowed else _demanding(reference, request),
    )


def _inactive(evaluation: EvaluationContext) -> tuple[str, ...]:
    """The roles of the caller that do not count because the request names others as active."""
    if evaluation.active is None:
        return ()
    everywhere, scoped = evaluation.active
    active = everywhere | {role for role, _ in scoped}
    return tuple(sorted(role for role in evaluation.roles if f"role:{role}" not in active))


def _activating(reference: Reference, request: Request, inactive: Sequence[str]) -> tuple[str, ...]:
    """The fewest further roles, or nearly, with which a denied request would be allowed; none if it would be denied with all of them."""

    def allowed(roles: Sequence[str]) -> bool:
        return reference.decide(replace(request, active_roles=(*(request.active_roles or ()), *roles))).allowed

    return _fewest(inactive, allowed)


def _demanding(reference: Reference, request: Request) -> tuple[str, ...]:
    """The fewest flags, or nearly, without which a denied request would be allowed; none if it would be denied without all of them."""

    def allowed(flags: Sequence[str]) -> bool:
        # An operation may require that a flag is said to be set or not.
        stated = request.flags.difference(flags).union(f"{flag}{NOT_SET}" for flag in flags)
        return reference.decide(replace(request, flags=stated)).allowed

    return _fewest(sorted(flag for flag in request.flags if not flag.endswith(NOT_SET)), allowed)


def _fewest(names: Sequence[str], allowed: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """One name that suffices, or some of which none can be left out; none if all of them do not suffice."""
    if not names or not allowed(names):
        return ()
    alone = next(((name,) for name in names if allowed((name,))), None)
    if alone is not None:
        return alone
    needed = list(names)
    for name in names:
        others = [other for other in needed if other != name]
        needed = others if allowed(others) else needed
    return tuple(needed)


def _part(evaluation: EvaluationContext, rows: Provenance | None, atom: Leaf) -> Part:
    assert not isinstance(atom, ByType), "a request gives every object its type"
    text, why = evaluation.text(atom), evaluation.why(atom)
    if why is not None:
        return Part(atom=text, holds=True, on=why.on, through=why.through, because=rows.of(atom) if rows else ())
    if not isinstance(atom, Has):
        return Part(atom=text, holds=False, fixed=isinstance(atom, Compare | Self))
    path = evaluation.path(atom.target)
    denials = evaluation.denials_on(atom.privilege, path)
    return Part(
        atom=text,
        holds=False,
        because=rows.granted(atom) if rows and denials else (),
        denied=tuple(f"{principal} at {key}" for key, principal in denials),
        denied_by=tuple(chain for _, chain in rows.denied(atom.privilege, path)) if rows else (),
    )
