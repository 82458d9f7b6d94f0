"""P324: a deletion that leaves behind what a creation granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.effects import PRINCIPAL_TABLES

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P324", "nothing-revoked", Severity.NOTE)
_DELETING = frozenset({"delete", "drop", "remove", "destroy", "unregister", "purge"})


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Deletions without `revokes`, of types whose creation grants something, in a file whose rows do revoke.

    A file that never revokes, or revokes only what a removed principal holds, leaves revocation to the system and is
    skipped.
    """
    revoked = [o for row in policy.rows.values() for o in row.outcomes if o.kind == "revoke"]
    if all(o.what in PRINCIPAL_TABLES and o.use is None for o in revoked):
        return
    granted: dict[str, str] = {}
    for row in policy.rows.values():
        for outcome in row.outcomes:
            if outcome.kind != "revoke" and outcome.type == row.entity and outcome.slot == "":
                granted.setdefault(row.entity, outcome.what)
    reported: set[Span] = set()
    for row in policy.rows.values():
        deletes = row.operation.partition("_")[0] in _DELETING and not row.operation.partition("_")[2]
        revokes = any(o.kind == "revoke" for o in row.outcomes)
        if not deletes or revokes or row.entity not in granted or row.decl.span in reported:
            continue
        reported.add(row.decl.span)
        yield KIND.at(
            row.decl.span,
            f"`{row.operation}` leaves `{granted[row.entity]}` of the `{row.entity}` behind",
            f"whoever creates another with the same name inherits it: add `revokes: {granted[row.entity]}`",
        )
