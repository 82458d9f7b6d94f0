"""P333: two roles with the same grants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P333", "same-role", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Roles with the same scope and default grants, after resolving sets and aliases; skips roles without grants."""
    first: dict[tuple[str | None, frozenset[tuple[str, str]]], str] = {}
    places = {role.name.value: role.name.span for role in policy.tables.roles}
    for role in policy.roles.values():
        grants = frozenset((type_, privilege) for type_, privileges in role.grants for privilege in privileges)
        if not grants or role.name not in places:
            continue
        twin = first.setdefault((role.scope, grants), role.name)
        if twin != role.name:
            yield KIND.at(
                places[role.name],
                f"the role `{role.name}` grants the same as `{twin}`",
                "one role is enough, unless states grant more to one of them",
                related=(Related(message="the other role", span=places[twin]),) if twin in places else (),
            )
