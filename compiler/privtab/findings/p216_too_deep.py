"""P216: a condition that goes too many levels down through `can`."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P216"
NAME = "too-deep"
SEVERITY = Severity.ERROR


def finding(span: Span, row: str, deepest: int) -> Diagnostic:
    """`row`: `entity/operation` of the first row in a chain of `can` that has more than `deepest` levels."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        span=span,
        help="say in this row what is required, or refer to a row further down the chain",
    )
