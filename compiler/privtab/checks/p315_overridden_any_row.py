"""P315: a row of `any` that names a type which has a row of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P315", "overridden-any-row", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Types in `for` to which the row never applies, because the type's own table takes precedence."""
    view = view_of(policy)
    for decl in policy.tables.any:
        for word in decl.for_types or ():
            row = policy.rows.get((word.value, decl.operation.value))
            if row is None or row.origin != "row":
                continue
            any_row = view.alternative_rows.row(word.value, decl, "any")
            comparison = None if any_row is None else compare(view, view.rule(row), view.lowering.rule(any_row))
            unknown = comparison is not None and comparison.breadth == "unknown"
            meaning = (
                "the same"
                if comparison is not None and comparison.equal
                else "something"
                if unknown
                else "something else"
            )
            yield KIND.at(
                word.span,
                f"the row `{row.operation}` of `{row.entity}` says {meaning}, so this one never applies to it",
                f"keep one: drop the row of the table, or leave `{row.entity}` out of `for`",
                related=(Related(message="the row that applies", span=row.decl.span),),
            )
