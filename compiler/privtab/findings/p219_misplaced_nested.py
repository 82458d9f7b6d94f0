"""P219: a type that cannot nest, or a condition that cannot name a level."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P219", "misplaced-nested", Severity.ERROR)


def finding(span: Span, type_: str, why: str, advice: str) -> Diagnostic:
    """Build the finding for `nested` of a type that cannot nest."""
    return KIND.at(span, f"`{type_}` cannot nest: {why}", advice)


def can(span: Span, written: str) -> Diagnostic:
    """Build the finding for `can` about a level other than the nearest."""
    return KIND.at(
        span,
        f"`can` asks about one entity, and `{written}` is not always an entity of the same type",
        "name the nearest one, or write the condition itself with this target",
    )


def holder(span: Span, word: str, written: str) -> Diagnostic:
    """Build the finding for `holds` or `self` about a level."""
    return KIND.at(span, f"`{word}` cannot be asked about `{written}`", "only privileges, `owner` and `member` can")


def compared(span: Span, written: str) -> Diagnostic:
    """Build the finding for an attribute of a level that may be several entities, or of different types."""
    return KIND.at(
        span,
        f"an attribute is that of one entity, and `{written}` is not always one of the same type",
        "name a type: that means the nearest one",
    )
