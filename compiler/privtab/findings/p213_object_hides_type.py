"""P213: a `with` object whose name hides another target."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P213"
NAME = "object-hides-type"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str, entity: str) -> Diagnostic:
    """Build the finding for `name`, which already has a meaning in conditions on `entity`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the object `{name}` hides the `{name}` of `{entity}`",
        span=span,
        help=f"give it another name: `{name}_2`, `other_{name}`",
    )
