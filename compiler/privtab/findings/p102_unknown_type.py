"""P102: an entity type that the file does not declare."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

CODE = "P102"
NAME = "unknown-type"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is not an entity type."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"unknown entity type `{name}`",
        span=span,
        help=did_you_mean(name, known) or f"the entity types are {listed(known)}",
        fix=nearest(name, known),
    )
