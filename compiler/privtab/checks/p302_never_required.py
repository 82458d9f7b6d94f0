"""P302: a privilege that no row requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model.nodes import Policy
    from privtab.syntax.nodes import ConditionCell, RowDecl, Tables, VariantDecl

KIND = FindingKind("P302", "never-required", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Privileges that no condition names in any row, reading or variant, not even by an alias or a set, nor any that they imply.

    Or that conditions name, but that decide nothing: no minimal set contains them.
    """
    named = set(required(policy))
    idle = _in_force(policy) - {privilege for privilege, _ in view_of(policy).required_privileges}
    for name, privilege in policy.privileges.items():
        if privilege.deprecated is not None or not named.isdisjoint(privilege.implies):
            continue
        if name not in named:
            yield _finding(policy, name, f"no row requires `{name}`", "add rows that require it")
        elif name in idle:
            message = f"`{name}` decides nothing: wherever it is required, something else is enough"
            yield _finding(policy, name, message, "check the rows that require it")


def _in_force(policy: Policy) -> frozenset[str]:
    """The privileges that the rows in force name."""
    from privtab.ir.formula import atoms, item_condition
    from privtab.ir.nodes import Has

    rules = view_of(policy).program.rules.values()
    return frozenset(a.privilege for rule in rules for a in atoms(item_condition(rule)) if isinstance(a, Has))


def _finding(policy: Policy, name: str, message: str, advice: str) -> Diagnostic:
    return KIND.at(policy.declared[name].span, message, f"granting it changes nothing: {advice}, or drop it")


def required(policy: Policy) -> Iterator[str]:
    """The privileges that conditions name in any row, reading or variant."""
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
