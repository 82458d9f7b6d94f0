"""P209: `can` with an operation that needs `with` objects."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

KIND = FindingKind("P209", "can-with-objects", Severity.ERROR)


def finding(span: Span, operation: str, types: Collection[str], objects: Collection[str]) -> Diagnostic:
    """Build the finding for a `can` whose row needs `with` objects."""
    return KIND.at(
        span,
        f"`can {operation}` on {listed(types)} needs {listed(objects)}, which `can` cannot name",
        "a row with `with` objects cannot be reached by `can`: write its condition out",
    )
