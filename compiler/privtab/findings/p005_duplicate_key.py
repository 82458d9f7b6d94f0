"""P005: a key that occurs twice in one mapping."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

KIND = FindingKind("P005", "duplicate-key", Severity.ERROR)


def finding(span: Span, key: str, first: Span) -> Diagnostic:
    """Build the finding for `key` at `span`, which already occurs at `first`."""
    return KIND.at(
        span,
        f"duplicate key `{key}`",
        f"it already occurs on line {first.line}: merge the two",
        related=(Related(message="first here", span=first),),
    )
