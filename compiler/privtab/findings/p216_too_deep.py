"""P216: a condition that refers too deeply through `can`."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P216"
NAME = "too-deep"
SEVERITY = Severity.ERROR


def finding(span: Span, row: str, deepest: int) -> Diagnostic:
    """Build the finding for `row` (`entity/operation`), the start of a chain of `can` of more than `deepest` levels."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        span=span,
        help="say in this row what is required, or refer to a row further down the chain",
    )
