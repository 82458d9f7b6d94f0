"""Explains the decision on one request: each minimal set with the rows behind it, and what would turn a denial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from privtab.analysis.caller import listing
from privtab.analysis.changes import Change
from privtab.analysis.proposals import Proposal, proposals
from privtab.analysis.provenance import Chain, Provenance
from privtab.analysis.turns import Ways, ways
from privtab.ir.canonical import Leaf, Listing
from privtab.ir.nodes import ByType, Compare, Has, Rule, Self
from privtab.ir.unroll import located_sets
from privtab.reference.evaluate import EvaluationContext, Explanation, Reference
from privtab.request import NOT_SET, Decision, Request
from privtab.state.names import NOWHERE, Places
from privtab.state.nodes import State


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
    """The decision on a request, its rule, every minimal set of the rule, and what would turn a denial into an allow.

    `turns`: the smallest sets of changes, fewest first; empty for an allow, and if no change leads to one. `proposals`:
    these and sets with roles and groups, least privilege first. `sets_complete` and `turns_complete` (also about
    `proposals`): whether all are listed, or only some because there are too many.

    If the request names active roles: `inactive` has the roles that the user holds and that do not count for it, `activating` those of
    them with which a denied request would be allowed, the fewest; then no other changes are worked out. `demanding`: if the request
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
    reference: Reference, request: Request, state: State | None = None, places: Places = NOWHERE
) -> RequestExplanation:
    """Explain one request. Raises InvalidRequest if it uses names that the policy does not know.

    `state`: the one that the reference was built from. Without it the explanation has no rows and no changes.
    """
    explanation = reference.explanation(request)
    rows = None if state is None else Provenance(explanation.evaluation, state, places)
    evaluation = explanation.evaluation
    minimal_sets = minimal_sets_of(evaluation, explanation.rule)
    turns, complete = Ways(()), True
    proposed: tuple[Proposal, ...] = ()
    inactive = _inactive(evaluation)
    if state is not None and not explanation.allowed and evaluation.active is not None:
        complete = False  # changes are not worked out for some of the caller's roles
    elif state is not None and not explanation.allowed:
        turns = ways(reference, state, request)
        proposed, complete = proposals(reference, state, request, turns)
    return RequestExplanation(
        request=request,
        decision=Decision(allowed=explanation.allowed, context=explanation.context()),
        rule=explanation.rule,
        sets=tuple(tuple(_part(explanation, rows, atom) for atom in atoms) for atoms in minimal_sets.sets),
        turns=turns.sets,
        proposals=proposed,
        sets_complete=minimal_sets.complete,
        turns_complete=complete,
        inactive=inactive,
        activating=() if explanation.allowed else _activating(reference, request, inactive),
        demanding=() if explanation.allowed else _demanding(reference, request),
    )


def minimal_sets_of(evaluation: EvaluationContext, rule: Rule) -> Listing:
    """The minimal sets of a rule for a request, as atoms about its entities."""
    found = listing(evaluation, rule, evaluation.condition(rule))
    if not evaluation.program.nests:
        return found
    return found._replace(sets=located_sets(evaluation.program, found.sets, evaluation.levels))


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


def _part(explanation: Explanation, rows: Provenance | None, atom: Leaf) -> Part:
    assert not isinstance(atom, ByType), "a request gives every object its type"
    text, why = explanation.text(atom), explanation.evaluation.why(atom)
    if why is not None:
        return Part(atom=text, holds=True, on=why.on, through=why.through, because=rows.of(atom) if rows else ())
    if not isinstance(atom, Has):
        return Part(atom=text, holds=False, fixed=isinstance(atom, Compare | Self))
    denials = explanation.evaluation.denials(atom.privilege, atom.target)
    return Part(
        atom=text,
        holds=False,
        because=rows.granted(atom) if rows and denials else (),
        denied=tuple(f"{principal} at {key}" for key, principal in denials),
        denied_by=tuple(chain for _, chain in rows.denied(atom)) if rows else (),
    )
