"""P220: a type whose ids cannot be flat."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P220", "misplaced-flat", Severity.ERROR)


def finding(span: Span, type_: str, why: str) -> Diagnostic:
    """Build the finding for `flat` of a type whose ids cannot be flat."""
    return KIND.at(span, f"ids of `{type_}` cannot be flat: {why}", "leave out `flat`")


def nested(span: Span, type_: str, below: str) -> Diagnostic:
    """Build the finding for a type that nests below `type_` and whose ids are paths."""
    return KIND.at(
        span,
        f"`{below}` nests below `{type_}`, whose ids are flat",
        f"let the ids of `{below}` be flat as well",
    )
