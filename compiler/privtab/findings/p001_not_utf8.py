"""P001: the file is not UTF-8."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P001"
NAME = "not-utf8"
SEVERITY = Severity.ERROR


def finding(span: Span) -> Diagnostic:
    """Build the finding; the first byte that is not UTF-8 is at `span`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message="the file is not UTF-8",
        span=span,
        help="save it as UTF-8; this is the first byte that does not fit",
    )
