"""P346: a row that makes its caller an owner although users may not own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P346", "creator-cannot-own", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows with `becomes: owner`, of their own or by `creator`, where `kinds` leaves users out; `creator` is reported once."""
    owner = policy.semantics.owner
    if owner is None or "user" in owner.kinds:
        return
    kinds = " or ".join(owner.kinds)
    reported: set[Span] = set()
    for row in policy.rows.values():
        owning = any(
            (outcome.kind, outcome.what, outcome.of_role) == ("become", "owner", False) for outcome in row.outcomes
        )
        implied = row.decl.body.becomes is None
        if owning and row.decl.span not in reported and not (implied and reported):
            reported.add(row.decl.span)
            cause = " by `creator: true`" if implied else ""
            yield KIND.at(
                row.decl.span,
                f"`{row.operation}` makes its caller the owner{cause}, and a state refuses a user as an owner: `kinds` has {kinds}",
                "add `user` to `kinds`, give a privilege by `grants` instead, or let a role own by `creator: active_role`",
            )
