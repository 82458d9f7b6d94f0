"""P216: a condition that refers too deeply through `can`."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P216", "too-deep", Severity.ERROR)


def finding(span: Span, row: str, deepest: int) -> Diagnostic:
    """Build the finding for `row` (`entity/operation`), the start of a chain of `can` of more than `deepest` levels."""
    return KIND.at(
        span,
        f"the condition of `{row}` goes more than {deepest} levels down, through `can`",
        "say in this row what is required, or refer to a row further down the chain",
    )
