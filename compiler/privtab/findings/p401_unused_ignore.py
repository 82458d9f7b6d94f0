"""P401: a comment that ignores a finding that does not occur."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P401"
NAME = "unused-ignore"
SEVERITY = Severity.WARNING


def finding(span: Span, code: str) -> Diagnostic:
    """Build the finding for the comment at `span`, which names `code` although nothing there has it."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"nothing here has the finding `{code}`",
        span=span,
        help="drop it from the comment, or move the comment to the line that it is for",
    )
