"""P336: a deprecated row that another row refers to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P336", "deprecated-row", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """`can` on an operation whose row is deprecated, in rows that are not."""
    from privtab.model.nodes import CanDo
    from privtab.model.walk import row_terms

    reported: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        for term in row_terms(row) if row.decl.deprecated is None else ():
            if not isinstance(term, CanDo) or (id(term.spot.cell), term.spot.start) in reported:
                continue
            referenced = [policy.rows.get((type_, term.operation)) for place in term.places for type_ in place.types]
            deprecated = next(
                (other for other in referenced if other is not None and other.decl.deprecated is not None), None
            )
            if deprecated is not None:
                reported.add((id(term.spot.cell), term.spot.start))
                advice = deprecated.decl.deprecated if deprecated.decl.deprecated != "deprecated" else None
                yield KIND.at(
                    term.spot.span,
                    f"the row `{deprecated.entity}/{deprecated.operation}` is deprecated",
                    advice or "write what is meant without it",
                )
