"""P215: an effect on an object whose type is not fixed."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

KIND = FindingKind("P215", "effect-on-many-types", Severity.ERROR)


def finding(span: Span, name: str, types: Collection[str]) -> Diagnostic:
    """Build the finding for an effect whose target `name` may have several types."""
    return KIND.at(
        span,
        f"an effect on `{name}` needs one type, and it may be {listed(types, last='or')}",
        "give the object one type in `with`",
    )
