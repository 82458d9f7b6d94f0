"""P214: a `with` object that no type fits."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P214"
NAME = "object-without-types"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str) -> Diagnostic:
    """Build the finding for the object `name`, for which no entity type fits all its uses."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"no entity type fits the object `{name}`",
        span=span,
        help="for every `can OP` a type needs a row, for every privilege it must be a type that it can be granted on",
    )
