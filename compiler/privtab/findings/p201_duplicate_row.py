"""P201: a row that occurs twice."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

KIND = FindingKind("P201", "duplicate-row", Severity.ERROR)


def finding(span: Span, entity: str, operation: str, first: Span) -> Diagnostic:
    """Build the finding for a row of `entity` that already occurs at `first`, with the same meaning."""
    return KIND.at(
        span,
        f"`{entity}` has the row `{operation}` twice",
        f"line {first.line} says the same: drop one",
        related=(Related(message="first here", span=first),),
    )
