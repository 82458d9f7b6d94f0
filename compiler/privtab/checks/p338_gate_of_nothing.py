"""P338: a row that drops the gate, in a file without a gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P338", "gate-of-nothing", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows with `gate: none` where `semantics` has no gate; each once."""
    if policy.tables.semantics.gate is not None:
        return
    reported: set[int] = set()
    for row in policy.rows.values():
        if row.decl.ungated and id(row.decl.body) not in reported:
            reported.add(id(row.decl.body))
            yield KIND.at(
                row.decl.span,
                f"the row `{row.operation}` has `gate: none`, but the file has no gate",
                "drop `gate: none`, or define the gate in `semantics`",
            )
