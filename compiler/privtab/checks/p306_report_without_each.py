"""P306: `report` in a row that has no items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P306", "report-without-each", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows with `report` and without `each`."""
    for row in policy.rows.values():
        if row.decl.body.report is not None and row.each is None:
            yield KIND.at(
                row.decl.body.report.span,
                f"the row `{row.operation}` reports items, but has no `each`",
                "say which items pass: `each: ADMIN (entity)`, or drop `report`",
            )
