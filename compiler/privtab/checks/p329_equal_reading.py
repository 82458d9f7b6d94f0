"""P329: another reading of a cell that means the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import in_every_type, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.ir.nodes import Rule
    from privtab.model import nodes as m

KIND = FindingKind("P329", "equal-reading", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Readings that mean exactly the same as the row or as another of its readings, effects included."""
    yield from in_every_type(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    view = view_of(policy)
    for row in policy.rows.values():
        earlier: list[tuple[str, Rule]] = [("the row itself", view.rule(row))]
        for reading, other in view.alternative_rows.readings(row):
            rule = view.lowering.rule(other)
            name = reading.name.value
            equal_reading = next(
                (description for description, earlier_rule in earlier if compare(view, rule, earlier_rule).equal), None
            )
            earlier.append((f"the reading `{name}`", rule))
            if equal_reading is not None and f"{row.entity}/{row.operation}" not in policy.chosen:
                yield (
                    row,
                    KIND.at(
                        reading.name.span,
                        f"the reading `{name}` means the same as {equal_reading}",
                        "drop it, or write what it was meant to say: choosing it changes no answer",
                    ),
                )
