"""P205: a set that contains itself."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P205"
NAME = "set-cycle"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str, member: str) -> Diagnostic:
    """Build the finding for the set `name`, whose member `member` contains `name`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the set `{name}` contains itself"
        if name == member
        else f"the sets `{member}` and `{name}` contain each other",
        span=span,
        help="sets must eventually resolve to privileges",
    )
