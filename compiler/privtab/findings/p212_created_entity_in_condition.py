"""P212: a creation that requires something on an entity that does not exist yet."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P212"
NAME = "created-entity-in-condition"
SEVERITY = Severity.ERROR


def finding(span: Span, entity: str) -> Diagnostic:
    """Build the finding for a row that creates `entity` although its condition refers to it."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the row creates the `{entity}`, but its condition refers to it",
        span=span,
        help="require something on its parent (`parent`), or drop `creates`",
    )
