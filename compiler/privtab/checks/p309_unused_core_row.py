"""P309: a core row that every entity type overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P309", "unused-core-row", Severity.NOTE)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Core rows that apply to no entity type."""
    used = {row.operation for row in policy.rows.values() if row.origin == "core"}
    for row in policy.tables.core:
        if row.operation.value not in used:
            yield KIND.at(
                row.operation.span,
                f"the core row `{row.operation.value}` applies to no entity type",
                "every entity type has a row of its own: drop it, or drop a row that says the same",
            )
