"""P003: the file is empty."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P003", "empty-file", Severity.ERROR)
POLICY = "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"


def finding(span: Span, begins: str = POLICY) -> Diagnostic:
    """Build the finding for a file without any value; `begins` says how such a file begins."""
    return KIND.at(span, "the file is empty", begins)
