"""P214: a `with` object that no type fits."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P214", "object-without-types", Severity.ERROR)


def finding(span: Span, name: str) -> Diagnostic:
    """Build the finding for the object `name`, for which no entity type fits all its uses."""
    return KIND.at(
        span,
        f"no entity type fits the object `{name}`",
        "for every `can OP` a type needs a row, for every privilege it must be a type that it can be granted on",
    )
