"""P003: the file is empty."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P003"
NAME = "empty-file"
SEVERITY = Severity.ERROR
POLICY = "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"


def finding(span: Span, begins: str = POLICY) -> Diagnostic:
    """Build the finding for a file without any value; `begins` says how such a file begins."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message="the file is empty",
        span=span,
        help=begins,
    )
