"""P008: a value of a YAML type that does not belong there."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P008"
NAME = "wrong-type"
SEVERITY = Severity.ERROR


def finding(span: Span, what: str, expected: str, actual: str, help_: str | None = None) -> Diagnostic:
    """`what` must be `expected` but is `actual`, both in words."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"{what} must be {expected}, not {actual}",
        span=span,
        help=help_,
    )
