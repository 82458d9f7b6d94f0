"""P201: a row that occurs twice."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODE = "P201"
NAME = "duplicate-row"
SEVERITY = Severity.ERROR


def finding(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with the same meaning."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"`{entity}` has the row `{operation}` twice",
        span=span,
        help=f"line {first.line} says the same: drop one",
        related=(Related(message="first here", span=first),),
    )
