"""P211: ownership in a file without owners."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P211", "no-owners", Severity.ERROR)


def finding(span: Span, what: str) -> Diagnostic:
    """Build the finding for `what`, which refers to owners, in a file without `semantics.owner`."""
    return KIND.at(
        span,
        f"{what} refers to owners, but the file has none",
        "say what ownership means: `semantics: {owner: {creator: true}}`",
    )
