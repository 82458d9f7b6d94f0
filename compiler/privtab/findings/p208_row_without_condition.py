"""P208: a row without a condition."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P208"
NAME = "row-without-condition"
SEVERITY = Severity.ERROR


def finding(span: Span, operation: str) -> Diagnostic:
    """Build the finding for the row of `operation`, which has neither `requires` nor `each`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the row `{operation}` has neither `requires` nor `each`",
        span=span,
        help="say who may: `requires: READ (TYPE)`, or `requires: anyone`",
    )
