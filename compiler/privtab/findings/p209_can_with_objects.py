"""P209: `can` with an operation that needs `with` objects."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.hints import listed

CODE = "P209"
NAME = "can-with-objects"
SEVERITY = Severity.ERROR


def finding(span: Span, operation: str, types: Collection[str], objects: Collection[str]) -> Diagnostic:
    """Build the finding for a `can` whose row needs `with` objects."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"`can {operation}` on {listed(types)} needs {listed(objects)}, which `can` cannot name",
        span=span,
        help="a row with `with` objects cannot be reached by `can`: write its condition out",
    )
