"""P308: a `with` object that the row never uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy, Row

KIND = FindingKind("P308", "unused-object", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Objects that occur neither in a condition nor in an effect, each once."""
    reported: set[int] = set()
    for row in policy.rows.values():
        if not row.withs or id(row.decl.withs) in reported:
            continue
        reported.add(id(row.decl.withs))
        used = set(_slots(row))
        for with_ in row.decl.withs:
            if with_.name.value not in used:
                yield KIND.at(
                    with_.name.span,
                    f"the row `{row.operation}` never uses its object `{with_.name.value}`",
                    "every request must still name it: require something of it, or drop it",
                )


def _slots(row: Row) -> Iterator[str]:
    from privtab.model.nodes import CanDo, Compared, HoldsPrivilege, Related
    from privtab.model.walk import row_terms

    for term in row_terms(row):
        if isinstance(term, (HoldsPrivilege, Related, CanDo, Compared)):
            yield from (place.slot for place in term.places)
    yield from (outcome.slot for outcome in row.outcomes)
