"""P202: two rows for the same operation with different meanings."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

KIND = FindingKind("P202", "contradicting-row", Severity.ERROR)


def finding(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with another meaning."""
    return KIND.at(
        span,
        f"`{entity}` has two rows `{operation}` that contradict each other",
        f"line {first.line} says something else: keep one, or record the other under `ambiguous`",
        related=(Related(message="the other row", span=first),),
    )
