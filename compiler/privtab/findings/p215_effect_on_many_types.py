"""P215: an effect on an object whose type is not fixed."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.hints import listed

CODE = "P215"
NAME = "effect-on-many-types"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str, types: Collection[str]) -> Diagnostic:
    """Build the finding for an effect whose target `name` may have several types."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"an effect on `{name}` needs one type, and it may be {listed(types, last='or')}",
        span=span,
        help="give the object one type in `with`",
    )
