"""P402: an invalid comment that should ignore a finding."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P402", "wrong-ignore", Severity.WARNING)


def finding(span: Span, message: str, help_: str | None, fix: str | None = None) -> Diagnostic:
    """Build the finding for an invalid comment: an unknown code, the code of an error, or no reason."""
    return KIND.at(span, message, help_, fix=fix)
