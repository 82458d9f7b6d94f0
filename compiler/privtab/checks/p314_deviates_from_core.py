"""P314: a row that differs from the core row for its operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from privtab.checks._compare import compare
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._compare import Comparison
    from privtab.model import nodes as m

KIND = FindingKind("P314", "deviates-from-core", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows that differ from a core row for the operation, one finding for each operation and kind of difference."""
    view = view_of(policy)
    groups: dict[tuple[str, str], list[m.Row]] = {}
    for row in policy.rows.values():
        core = view.alternative_rows.core(row)
        if core is not None:
            comparison = compare(view, view.rule(row), view.lowering.rule(core))
            if not comparison.equal and comparison.breadth != "unknown":
                groups.setdefault((row.operation, _difference(comparison)), []).append(row)
    core_rows = {row.operation.value: row for row in policy.tables.core}
    for (operation, difference), rows in groups.items():
        first = rows[0]
        others = listed(f"{row.entity}/{row.operation}" for row in rows[1:])
        same_rows = f"; the same applies to {others}" if len(rows) > 1 else ""
        core_row = core_rows.get(operation)
        yield KIND.at(
            first.decl.span,
            f"the row `{first.entity}/{operation}` {difference} the core row",
            f"explain why in a `note`, or drop the row so that the core row applies{same_rows}",
            related=() if core_row is None else (Related(message="the core row", span=core_row.operation.span),),
        )


def _difference(comparison: Comparison) -> str:
    if not comparison.same_objects:
        return "takes other objects than"
    match comparison.breadth:
        case "wider":
            return "allows more than"
        case "narrower":
            return "allows less than"
        case "incomparable":
            return "allows and refuses other callers than"
        case "equal":
            return "has other effects than" if not comparison.same_effects else "reports otherwise than"
        case "unknown":
            raise AssertionError("an undecided comparison is not reported")
        case _:
            assert_never(comparison.breadth)
