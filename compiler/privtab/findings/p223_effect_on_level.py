"""P223: an effect on a level of a type that nests other than the nearest."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P223", "effect-on-level", Severity.ERROR)


def finding(span: Span, written: str) -> Diagnostic:
    """Build the finding for an effect on `written`."""
    return KIND.at(
        span,
        f"an effect changes one entity of a known type, and `{written}` is not one",
        "name the entity itself, its nearest container, or a type that does not nest",
    )
