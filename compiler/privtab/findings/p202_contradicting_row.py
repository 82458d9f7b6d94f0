"""P202: two rows for the same operation with different meanings."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODE = "P202"
NAME = "contradicting-row"
SEVERITY = Severity.ERROR


def finding(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with another meaning."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"`{entity}` has two rows `{operation}` that contradict each other",
        span=span,
        help=f"line {first.line} says something else: keep one, or record the other under `ambiguous`",
        related=(Related(message="the other row", span=first),),
    )
