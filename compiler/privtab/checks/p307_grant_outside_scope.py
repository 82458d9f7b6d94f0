"""P307: a role's default grant on a type that its scope does not contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P307", "grant-outside-scope", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Default grants that never count, since the role gives its privileges only within the scope it is assigned for."""
    for role in (*policy.tables.roles, *(r for v in policy.tables.variants for r in v.roles)):
        if role.scope is None:
            continue
        for type_, _ in role.grants:
            if not policy.hierarchy.within(type_.value, role.scope.value):
                inside = policy.hierarchy.inside(role.scope.value)
                yield KIND.at(
                    type_.span,
                    f"a `{type_.value}` is never within the scope of `{role.name.value}`, a `{role.scope.value}`",
                    f"the scope holds {listed(inside)}",
                )
