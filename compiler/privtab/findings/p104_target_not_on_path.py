"""P104: a target that is not on the object's path."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

KIND = FindingKind("P104", "target-not-on-path", Severity.ERROR)


def finding(span: Span, target: str, entity: str, targets: Collection[str]) -> Diagnostic:
    """Build the finding for a condition on `entity` that names `target`, which is not one of its `targets`."""
    help_ = f"targets here are {listed(targets)}; another object is declared by `with`"
    if target == "parent":
        help_ = f"`{entity}` is at the top: it has no parent"
    return KIND.at(span, f"`{target}` is not on the path of `{entity}`", help_ if targets else None)
