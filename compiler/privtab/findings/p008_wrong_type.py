"""P008: a value of the wrong YAML type."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P008"
NAME = "wrong-type"
SEVERITY = Severity.ERROR


def finding(span: Span, what: str, expected: str, actual: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `what`, which must be `expected` but is `actual`, both in words."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"{what} must be {expected}, not {actual}",
        span=span,
        help=help_,
    )
