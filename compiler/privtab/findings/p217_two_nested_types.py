"""P217: two types that nest on one path."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P217", "two-nested-types", Severity.ERROR)


def finding(span: Span, type_: str, outer: str) -> Diagnostic:
    """Build the finding for `type_`, which nests and lies below `outer`, which nests as well."""
    return KIND.at(
        span,
        f"`{type_}` and `{outer}` both nest, and `{type_}` lies below `{outer}`",
        "only one type on a path may nest, otherwise the number of names would not tell which name belongs to which type",
    )
