"""P103: a target that is neither an entity type nor an object of the row."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.hints import did_you_mean, listed

CODE = "P103"
NAME = "undefined-object"
SEVERITY = Severity.ERROR
ITSELF = frozenset({"this", "self", "itself", "resource", "object", "target", "it"})
"""Names of the request's resource in other languages."""


def finding(span: Span, name: str, objects: Collection[str], targets: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is neither one of the row's `with` objects nor one of its `targets`."""
    help_ = did_you_mean(name, (*objects, *targets)) if name not in ITSELF else "the row's own entity is `entity`"
    if help_ is None:
        help_ = (
            f"targets here are {listed((*objects, *targets))}; a further object is declared by `with: {{{name}: TYPE}}`"
        )
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"undefined object `{name}`",
        span=span,
        help=help_,
    )
