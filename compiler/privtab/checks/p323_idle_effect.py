"""P323: an effect that gives nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import in_every_type, view
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Effect, Formula, Rule
    from privtab.model import nodes as m

KIND = FindingKind("P323", "idle-effect", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Grants of what the call requires on the same object anyway, or of what no row requires; each row once.

    Some member of a set must be new, and some must count. Ownership counts if a row requires owners or owners hold
    something, membership if a row or the gate requires members.
    """
    yield from in_every_type(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    seen = view(policy)
    for row in policy.rows.values():
        rule = seen.rule(row)
        for outcome, effect in zip(row.outcomes, rule.effects, strict=True):
            if effect.kind == "revoke" or not _written(row, outcome):
                continue
            said = _idle(seen, rule, effect)
            if said is None:
                continue
            verb = "grants" if effect.kind == "grant" else "makes the caller"
            yield (
                row,
                KIND.at(
                    row.decl.span if outcome.use is None else outcome.use.spot.span,
                    f"the row `{row.operation}` {verb} `{effect.what}` of the `{effect.target.type}`, {said}",
                    "drop it, or check what it was meant to give",
                ),
            )


def _written(row: m.Row, outcome: m.Outcome) -> bool:
    """Whether the row states the effect itself, and it does not come from the ownership of creators."""
    return outcome.use is not None or row.decl.body.becomes is not None


def _idle(seen: View, rule: Rule, effect: Effect) -> str | None:
    from privtab.ir.formula import call_condition, conjunction
    from privtab.ir.nodes import RESOURCE, Has, Member, Owner

    given: list[Formula] = [Has(privilege=p, target=effect.target) for p in effect.privileges]
    if not given:
        given = [Owner(target=effect.target) if effect.what == "owner" else Member(target=effect.target)]
    if effect.target.slot == RESOURCE and seen.implies(rule, call_condition(rule), conjunction(*given)):
        return "which the call already requires"
    if effect.privileges:
        counts = any(seen.counts(privilege, effect.target.type) for privilege in effect.privileges)
    else:
        counts = _relation_counts(seen, effect)
    return None if counts else "which no row requires"


def _relation_counts(seen: View, effect: Effect) -> bool:
    owner = seen.policy.semantics.owner
    held = owner.holds if effect.what == "owner" and owner is not None else ()
    on = effect.target.type
    return (effect.what, on) in seen.related or any(seen.counts(privilege, on) for privilege in held)
