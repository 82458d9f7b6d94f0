"""P342: a privilege that nothing requires and that only implies others, as a set does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks.p302_never_required import required
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P342", "implication-as-set", Severity.NOTE)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Privileges with `implies` that no condition requires and no other list of `implies` names, in a file without denials.

    A denial of a set denies its members, and one of a privilege does not deny what the privilege implies: with denials they differ.
    """
    if policy.semantics.deny != "none":
        return
    named = set(required(policy))
    named.update(p for privilege in policy.privileges.values() for p in privilege.implies)
    for privilege in policy.privileges.values():
        if privilege.implies and privilege.name not in named:
            yield KIND.at(
                policy.declared[privilege.name].span,
                f"no row requires `{privilege.name}`: it stands for what it implies",
                f"`sets: {{{privilege.name}: [{', '.join(privilege.implies)}]}}` says the same",
            )
