"""P337: a type in `on` where no row requires the privilege."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P337", "idle-type", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Types on which a privilege can be granted but changes no answer, neither there nor, with inheritance, below.

    A privilege that nothing requires at all is reported by another finding.
    """
    view = view_of(policy)
    required = {privilege for privilege, _ in view.required_privileges}
    for decl in policy.tables.privileges:
        for word in decl.on or ():
            name = decl.name.value
            if name in required and not view.can_matter(name, word.value):
                yield KIND.at(
                    word.span,
                    f"no row requires `{name}` on a `{word.value}`",
                    "granting it there changes nothing: drop the type, or add rows that require it",
                )
