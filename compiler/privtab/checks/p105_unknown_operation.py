"""P105: `can` of an operation that the type has no row for."""

from __future__ import annotations

from collections.abc import Collection

from privtab.checks._hints import did_you_mean, listed, nearest
from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P105"
NAME = "unknown-operation"
SEVERITY = Severity.ERROR
_ANY = 8


def finding(span: Span, operation: str, types: Collection[str], known: Collection[str]) -> Diagnostic:
    """None of the `types` has a row for `operation`."""
    where = listed(types, last="or") if len(types) < _ANY else "any entity type"
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"unknown operation `{operation}` on {where}",
        span=span,
        help=did_you_mean(operation, known) or (f"it has {listed(known)}" if known else "it has no rows at all"),
        fix=nearest(operation, known),
    )
