"""P334: a creation that requires something on what it creates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P334", "creation-asks-for-itself", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows `create` in which every alternative requires something on the entity, or below it, before it exists.

    `creates: false` states that the entity exists, and `ambiguous` that the cell has been reviewed.
    """
    from privtab.ir.formula import call_condition

    view = view_of(policy)
    reported: set[Span] = set()
    for row in policy.rows.values():
        settled = row.decl.creates is not None or row.decl.ambiguous is not None
        if row.operation != "create" or row.creates or settled or row.decl.span in reported:
            continue
        rule = view.rule(row)
        if not view.allowed(rule, call_condition(rule), unnamed=True):
            reported.add(row.decl.span)
            yield KIND.at(
                row.decl.span,
                f"creating a `{row.entity}` requires something on the `{row.entity}`, which does not exist yet",
                "require it on its parent, or write `creates: false` if it already exists",
            )
