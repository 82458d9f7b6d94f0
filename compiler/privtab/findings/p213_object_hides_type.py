"""P213: a `with` object whose name hides another target."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P213", "object-hides-type", Severity.ERROR)


def finding(span: Span, name: str, entity: str) -> Diagnostic:
    """Build the finding for `name`, which already has a meaning in conditions on `entity`."""
    return KIND.at(
        span,
        f"the object `{name}` hides the `{name}` of `{entity}`",
        f"give it another name: `{name}_2`, `other_{name}`",
    )
