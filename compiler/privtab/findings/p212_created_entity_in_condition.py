"""P212: a creation that requires something on an entity that does not exist yet."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P212", "created-entity-in-condition", Severity.ERROR)


def finding(span: Span, entity: str) -> Diagnostic:
    """Build the finding for a row that creates `entity` although its condition refers to it."""
    return KIND.at(
        span,
        f"the row creates the `{entity}`, but its condition refers to it",
        "require something on its parent (`parent`), or drop `creates`",
    )
