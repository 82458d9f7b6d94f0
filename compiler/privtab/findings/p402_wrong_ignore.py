"""P402: an invalid comment that should ignore a finding."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P402"
NAME = "wrong-ignore"
SEVERITY = Severity.WARNING


def finding(span: Span, message: str, help_: str | None, fix: str | None = None) -> Diagnostic:
    """Build the finding for an invalid comment: an unknown code, the code of an error, or no reason."""
    return Diagnostic(code=CODE, name=NAME, severity=SEVERITY, message=message, span=span, help=help_, fix=fix)
