"""P303: a row without `source`, in a file that names its documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P303", "row-without-source", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows without `source`, each once even if it applies to several types; none if the file has no `sources`."""
    if not policy.sources:
        return
    reported: set[int] = set()
    example = "source: 15" if len(policy.sources) == 1 else f"source: {next(iter(policy.sources))}:15"
    for row in policy.rows.values():
        if row.decl.source or id(row.decl.body) in reported:
            continue
        reported.add(id(row.decl.body))
        yield KIND.at(
            row.decl.span, f"the row `{row.operation}` has no `source`", f"add the line of the document: `{example}`"
        )
