"""P103: a target that is neither an entity type nor an object of the row."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed

KIND = FindingKind("P103", "undefined-object", Severity.ERROR)
ITSELF = frozenset({"this", "self", "itself", "resource", "object", "target", "it"})
"""Names of the request's resource in other languages."""


def finding(span: Span, name: str, objects: Collection[str], targets: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is neither one of the row's `with` objects nor one of its `targets`."""
    help_ = did_you_mean(name, (*objects, *targets)) if name not in ITSELF else "the row's own entity is `entity`"
    if help_ is None:
        help_ = (
            f"targets here are {listed((*objects, *targets))}; a further object is declared by `with: {{{name}: TYPE}}`"
        )
    return KIND.at(span, f"undefined object `{name}`", help_)
