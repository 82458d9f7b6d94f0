"""P401: a comment that ignores a finding that is not there."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P401"
NAME = "unused-ignore"
SEVERITY = Severity.WARNING


def finding(span: Span, code: str) -> Diagnostic:
    """The comment at `span` names `code`, which nothing there has."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"nothing here has the finding `{code}`",
        span=span,
        help="drop it from the comment, or move the comment to the line that it is for",
    )
