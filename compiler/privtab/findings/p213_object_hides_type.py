"""P213: a `with` object called like something that it would hide."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P213"
NAME = "object-hides-type"
SEVERITY = Severity.ERROR


def finding(span: Span, name: str, entity: str) -> Diagnostic:
    """`name` already means something in conditions about an `entity`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"the object `{name}` hides the `{name}` of `{entity}`",
        span=span,
        help=f"give it another name: `{name}_2`, `other_{name}`",
    )
