"""P326: an alias of an alias."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P326", "alias-chain", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Aliases of another alias instead of the privilege itself."""
    for decl in policy.tables.privileges:
        if decl.alias_of is not None and decl.alias_of.value in policy.aliases:
            privilege = policy.aliases[decl.name.value].of
            yield KIND.at(
                decl.alias_of.span,
                f"`{decl.name.value}` is an alias of the alias `{decl.alias_of.value}`",
                f"name the privilege itself: `alias_of: {privilege}`",
            )
