"""P330: a row of a variant that means the same as the row that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Rule
    from privtab.model import nodes as m

KIND = FindingKind("P330", "equal-variant-row", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows of variants that decide the same as the file, with the same effects: compared exactly.

    A row that is reached by `can` may differ in the variant; then only identical conditions count as equal.
    """
    view = view_of(policy)
    reported: set[Span] = set()
    rows = list(view.alternative_rows.variants())
    replaced = {variant: {(r.entity, r.operation) for v, r in rows if v == variant} for variant, _ in rows}
    for variant, row in rows:
        file_row = policy.rows[row.entity, row.operation]
        if row.decl.span in reported or not _equal(
            view, view.lowering.rule(row), view.rule(file_row), replaced[variant]
        ):
            continue
        reported.add(row.decl.span)
        yield KIND.at(
            row.decl.span,
            f"`{row.entity}/{row.operation}` of the variant `{variant}` means the same as the row of the file",
            "drop it, or write what the variant changes",
            related=(Related(message="the row of the file", span=file_row.decl.span),),
        )


def _equal(view: View, first: Rule, second: Rule, replaced: set[tuple[str, str]]) -> bool:
    from privtab.ir.formula import followed, item_condition
    from privtab.ir.nodes import Can

    if not compare(view, first, second).equal:
        return False
    nodes = (node for rule in (first, second) for node in followed(view.program, item_condition(rule)))
    reached = {(node.target.type, node.operation) for node in nodes if isinstance(node, Can)}
    return item_condition(first) == item_condition(second) or not reached & replaced
