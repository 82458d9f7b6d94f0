"""P105: `can` with an operation that the type has no row for."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

KIND = FindingKind("P105", "unknown-operation", Severity.ERROR)
_ANY = 8


def finding(
    span: Span, operation: str, types: Collection[str], known: Collection[str], *, is_privilege: bool = False
) -> Diagnostic:
    """Build the finding for `operation`, for which none of the `types` has a row."""
    instead = f"`{operation}` is a privilege: leave `can` out" if is_privilege else did_you_mean(operation, known)
    where = listed(types, last="or") if len(types) < _ANY else "any entity type"
    return KIND.at(
        span,
        f"unknown operation `{operation}` on {where}",
        instead or (f"it has {listed(known)}" if known else "it has no rows at all"),
        fix=nearest(operation, known),
    )
