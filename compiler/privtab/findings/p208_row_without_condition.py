"""P208: a row that does not say who may."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P208"
NAME = "row-without-condition"
SEVERITY = Severity.ERROR


def finding(span: Span, operation: str) -> Diagnostic:
    """The row for `operation` has neither `requires` nor `each`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the row `{operation}` has neither `requires` nor `each`",
        span=span,
        help="say who may: `requires: READ (TYPE)`, or `requires: anyone`",
    )
