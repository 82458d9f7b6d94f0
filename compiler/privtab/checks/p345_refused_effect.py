"""P345: an effect that gives the caller what rows of the state cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P345", "refused-effect", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Grants to the caller where grants to users are refused, and ownership where users may not own."""
    semantics = policy.semantics
    reported: set[Span] = set()
    for row in policy.rows.values():
        for outcome in row.outcomes:
            if outcome.kind == "grant":
                kinds, key = semantics.grantees, "grantees"
            elif (outcome.kind, outcome.what, outcome.of_role) == (
                "become",
                "owner",
                False,
            ) and semantics.owner is not None:
                kinds, key = semantics.owner.kinds, "owner.kinds"
            else:
                continue
            span = row.decl.span if outcome.use is None else outcome.use.spot.span
            if "user" not in kinds and span not in reported:
                reported.add(span)
                yield KIND.at(
                    span,
                    f"`{row.operation}` gives the caller `{outcome.what}` of the `{outcome.type}`, which a user cannot have",
                    f"leave the effect out: `semantics.{key}` lists {listed(kinds)}",
                )
