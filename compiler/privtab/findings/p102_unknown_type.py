"""P102: an entity type that the file does not declare."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

KIND = FindingKind("P102", "unknown-type", Severity.ERROR)


def finding(span: Span, name: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is not an entity type."""
    return KIND.at(
        span,
        f"unknown entity type `{name}`",
        did_you_mean(name, known) or f"the entity types are {listed(known)}",
        fix=nearest(name, known),
    )
