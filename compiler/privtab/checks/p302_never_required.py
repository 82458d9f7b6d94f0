"""P302: a privilege that no row asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy
    from privtab.syntax.nodes import ConditionCell, RowDecl, Tables, VariantDecl

CODE = "P302"
NAME = "never-required"
SEVERITY = Severity.WARNING


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Privileges that stand in no condition: of no row, reading or variant, not even as an alias or in a set."""
    required = set(_required(policy))
    for name, privilege in policy.privileges.items():
        if name not in required and privilege.deprecated is None:
            yield Diagnostic(
                code=CODE,
                name=NAME,
                severity=SEVERITY,
                message=f"no row asks for `{name}`",
                span=policy.declared[name].span,
                help="granting it changes nothing: add the rows that it is for, or drop it",
            )


def _required(policy: Policy) -> Iterator[str]:
    from privtab.model.conditions import privilege_names

    for cell in _cells(policy.tables):
        if cell.expression is not None:
            for name in privilege_names(cell.expression):
                if name.text in policy.aliases:
                    yield policy.aliases[name.text].of
                else:
                    yield from policy.sets.get(name.text, (name.text,))


def _cells(tables: Tables) -> Iterator[ConditionCell]:
    if tables.semantics.gate is not None:
        yield tables.semantics.gate
    layers: tuple[Tables | VariantDecl, ...] = (tables, *tables.variants)
    for layer in layers:
        for row in (*layer.core, *layer.any, *(row for table in layer.tables for row in table.rows)):
            yield from _row_cells(row)


def _row_cells(row: RowDecl) -> Iterator[ConditionCell]:
    readings = row.ambiguous.readings if row.ambiguous is not None else ()
    for body in (row.body, *(reading.body for reading in readings)):
        yield from (cell for cell in (body.requires, body.each) if cell is not None)
