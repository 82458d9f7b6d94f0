"""P323: an effect that gives nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._parts import with_implied
from privtab.checks._view import in_every_type, view_of
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
    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        for outcome, effect in zip(row.outcomes, rule.effects, strict=True):
            if effect.kind == "revoke" or not _written(row, outcome):
                continue
            reason = _idle(view, rule, effect)
            if reason is None:
                continue
            verb = "grants" if effect.kind == "grant" else "makes the caller"
            yield (
                row,
                KIND.at(
                    row.decl.span if outcome.use is None else outcome.use.spot.span,
                    f"the row `{row.operation}` {verb} `{effect.what}` of the `{effect.target.type}`, {reason}",
                    "drop it, or check what it was meant to give",
                ),
            )


def _written(row: m.Row, outcome: m.Outcome) -> bool:
    """Whether the row states the effect itself, and it does not come from the ownership of creators."""
    return outcome.use is not None or row.decl.body.becomes is not None


def _idle(view: View, rule: Rule, effect: Effect) -> str | None:
    from privtab.ir.formula import call_condition, conjunction
    from privtab.ir.nodes import RESOURCE, Has, Member, Owner

    granted = with_implied(view.policy, effect.privileges, effect.target.type)
    given_atoms: list[Formula] = [Has(privilege=p, target=effect.target) for p in granted]
    if not given_atoms:
        given_atoms = [Owner(target=effect.target) if effect.what == "owner" else Member(target=effect.target)]
    if effect.target.slot == RESOURCE and view.implies(rule, call_condition(rule), conjunction(*given_atoms)):
        return "which the call already requires"
    if effect.privileges:
        matters = any(view.can_matter(privilege, effect.target.type) for privilege in granted)
    else:
        matters = _relation_matters(view, effect)
    return None if matters else "which no row requires"


def _relation_matters(view: View, effect: Effect) -> bool:
    owner = view.policy.semantics.owner
    owner_privileges = owner.holds if effect.what == "owner" and owner is not None else ()
    type_ = effect.target.type
    return (effect.what, type_) in view.required_relations or any(
        view.can_matter(privilege, type_) for privilege in owner_privileges
    )
