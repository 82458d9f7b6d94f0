"""P401: a comment that ignores a finding that does not occur."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P401", "unused-ignore", Severity.WARNING)


def finding(span: Span, code: str) -> Diagnostic:
    """Build the finding for the comment at `span`, which names `code` although nothing there has it."""
    return KIND.at(
        span,
        f"nothing here has the finding `{code}`",
        "drop it from the comment, or move the comment to the line that it is for",
    )
