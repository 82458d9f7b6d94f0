"""P345: an effect that grants the caller what users cannot be granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P345", "refused-effect", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Grants to the caller where grants to users are refused."""
    grantees = policy.semantics.grantees
    if "user" in grantees:
        return
    reported: set[Span] = set()
    for row in policy.rows.values():
        for outcome in row.outcomes:
            span = row.decl.span if outcome.use is None else outcome.use.spot.span
            if outcome.kind == "grant" and span not in reported:
                reported.add(span)
                yield KIND.at(
                    span,
                    f"`{row.operation}` gives the caller `{outcome.what}` of the `{outcome.type}`, which a user cannot have",
                    f"leave the effect out: `semantics.grantees` lists {listed(grantees)}",
                )
