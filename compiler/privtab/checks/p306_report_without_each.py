"""P306: `report` in a row that has no items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

CODE = "P306"
NAME = "report-without-each"
SEVERITY = Severity.WARNING


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows with `report` and without `each`."""
    for row in policy.rows.values():
        if row.decl.body.report is not None and row.each is None:
            yield Diagnostic(
                code=CODE,
                name=NAME,
                severity=SEVERITY,
                message=f"the row `{row.operation}` reports items, but has no `each`",
                span=row.decl.body.report.span,
                help="say which items pass: `each: ADMIN (entity)`, or drop `report`",
            )
