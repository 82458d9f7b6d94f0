"""P327: an `each` that every item passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import in_every_type, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P327", "idle-each", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows whose call implies `each`, so that no item is ever left out. `each: anyone` states this openly."""
    yield from in_every_type(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    from privtab.ir.formula import call_condition
    from privtab.ir.nodes import ALWAYS
    from privtab.model.walk import first_spot

    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.each is None or rule.each is None or rule.each == ALWAYS:
            continue
        if view.implies(rule, call_condition(rule), rule.each, part="items"):
            spot = first_spot(row.each)
            yield (
                row,
                KIND.at(
                    row.decl.span if spot is None else spot.span,
                    f"every item of `{row.operation}` passes: the call already requires all that `each` requires",
                    "write `each: anyone`, or require something on the item",
                ),
            )
