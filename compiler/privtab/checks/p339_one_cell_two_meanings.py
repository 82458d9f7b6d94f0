"""P339: rows of one type that come from one line of the document but differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P339", "one-cell-two-meanings", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows of a type with the very same `source` that allow different callers or have different effects.

    Rows with a `note` or `ambiguous` are skipped, since the difference is known; so are rows whose sources differ in
    any line.
    """
    view = view_of(policy)
    first: dict[tuple[str, tuple[tuple[str | None, int | None], ...]], m.Row] = {}
    for row in policy.rows.values():
        decl = row.decl
        if row.origin != "row" or not decl.source or decl.note is not None or decl.ambiguous is not None:
            continue
        if any(ref.line is None for ref in decl.source):
            continue
        earlier = first.setdefault((row.entity, tuple((ref.name, ref.line) for ref in decl.source)), row)
        if earlier is row or earlier.decl.body is decl.body:
            continue
        comparison = compare(view, view.rule(row), view.rule(earlier))
        if comparison.equal or comparison.breadth == "unknown":
            continue
        yield KIND.at(
            decl.span,
            f"`{row.operation}` and `{earlier.operation}` come from one line of the document, but differ",
            "correct one of them, or explain in a `note` why they differ",
            related=(Related(message="the other row", span=earlier.decl.span),),
        )
