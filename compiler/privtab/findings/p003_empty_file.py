"""P003: the file says nothing."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P003"
NAME = "empty-file"
SEVERITY = Severity.ERROR
POLICY = "a policy begins with `privtab: 1`, `system: NAME` and `version: NAME`"


def finding(span: Span, begins: str = POLICY) -> Diagnostic:
    """The file holds no value at all; `begins` says how one of its kind begins."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message="the file is empty",
        span=span,
        help=begins,
    )
