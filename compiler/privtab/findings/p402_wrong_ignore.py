"""P402: a comment that means to ignore a finding and cannot."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P402"
NAME = "wrong-ignore"
SEVERITY = Severity.WARNING


def finding(span: Span, message: str, help_: str | None, fix: str | None = None) -> Diagnostic:
    """What is wrong with a comment: an unknown code, one of an error, no reason."""
    return Diagnostic(code=CODE, name=NAME, severity=SEVERITY, message=message, span=span, help=help_, fix=fix)
