"""P328: a condition beside others that imply it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import everywhere, view
from privtab.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.model import nodes as m

CODE = "P328"
NAME = "redundant-condition"
SEVERITY = Severity.WARNING


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `and` that the other parts, or the gate, imply: compared exactly, through `can` too.

    `anyone` beside others is passed over, being the way to say that a row is open unless a flag is set.
    """
    yield from everywhere(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    from privtab.model.walk import conditions, conjunctions, first_spot

    seen = view(policy)
    for row in policy.rows.values():
        for condition in conditions(row):
            for all_of in conjunctions(condition):
                for part, by in _implied(seen, row, all_of):
                    spot = first_spot(part)
                    if spot is None:
                        continue
                    yield (
                        row,
                        Diagnostic(
                            code=CODE,
                            name=NAME,
                            severity=SEVERITY,
                            message=f"this condition adds nothing: {by}",
                            span=spot.span,
                            help="drop it, or check what it was meant to say",
                        ),
                    )


def _implied(seen: View, row: m.Row, all_of: m.AllOf) -> Iterator[tuple[m.Condition, str]]:
    """The parts that the rest implies, the last first, and what implies them."""
    from privtab.ir.formula import conjunction
    from privtab.ir.nodes import ALWAYS

    rule = seen.rule(row)
    formulas = [seen.lowering.formula(part) for part in all_of.parts]
    kept = list(range(len(formulas)))
    for i in reversed(range(len(formulas))):
        rest = [formulas[j] for j in kept if j != i]
        if formulas[i] == ALWAYS or not seen.implies(rule, conjunction(rule.gate, *rest), formulas[i]):
            continue
        kept.remove(i)
        by_gate = seen.implies(rule, rule.gate, formulas[i])
        yield all_of.parts[i], "the gate asks for it" if by_gate else "what stands beside it asks for as much"
