"""P321: a default grant of a role that changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._parts import with_implied
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P321", "idle-role-grant", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Privileges that a role grants on a type although no row requires them there or, with inheritance, below.

    A set is reported if none of its members is required. A role without any effective grant is reported once.
    """
    view = view_of(policy)
    for role in (*policy.tables.roles, *(r for v in policy.tables.variants for r in v.roles)):
        idle = [
            (type_, word)
            for type_, words in role.grants
            for word in words
            if not any(
                view.can_matter(privilege, type_.value)
                for privilege in with_implied(policy, _members(policy, word.value), type_.value)
            )
        ]
        if len(idle) == sum(len(words) for _, words in role.grants):
            message = f"the role `{role.name.value}` grants nothing that a row requires"
            yield _finding(
                role.name.span,
                message,
                "grant what its holders are meant to do, or drop it: grants of a state need no declaration",
            )
            continue
        for type_, word in idle:
            message = f"no row requires `{word.value}` on a `{type_.value}`"
            yield _finding(word.span, message, "drop it, or add rows that require it")


def _members(policy: m.Policy, name: str) -> tuple[str, ...]:
    if name in policy.aliases:
        return (policy.aliases[name].of,)
    return policy.sets.get(name, (name,))


def _finding(span: Span, message: str, advice: str) -> Diagnostic:
    return KIND.at(span, message, advice)
