"""P001: the file is not UTF-8."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P001", "not-utf8", Severity.ERROR)


def finding(span: Span) -> Diagnostic:
    """Build the finding; the first byte that is not UTF-8 is at `span`."""
    return KIND.at(span, "the file is not UTF-8", "save it as UTF-8; this is the first byte that does not fit")
