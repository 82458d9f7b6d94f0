"""P325: a set that the file never uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m
    from privtab.syntax.nodes import Tables, VariantDecl

KIND = FindingKind("P325", "unused-set", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Sets that no condition, effect, role, other set or `implies` uses, nor what owners hold; readings and variants count."""
    tables = policy.tables
    used = {word.value for set_ in tables.sets for word in set_.members}
    if tables.semantics.owner is not None:
        used |= {word.value for word in tables.semantics.owner.holds}
    used |= {word.value for privilege in tables.privileges for word in privilege.implies}
    for role in (*tables.roles, *(role for variant in tables.variants for role in variant.roles)):
        used |= {word.value for _, words in role.grants for word in words}
    used |= set(_in_cells(tables))
    for set_ in tables.sets:
        if set_.name.value not in used:
            yield KIND.at(
                set_.name.span,
                f"no row, role or set uses the set `{set_.name.value}`",
                "keep it if states grant it by that name; else drop it",
            )


def _in_cells(tables: Tables) -> Iterator[str]:
    """Every name in a condition or an effect."""
    from privtab.model.conditions import privilege_names

    if tables.semantics.gate is not None and tables.semantics.gate.expression is not None:
        yield from (name.text for name in privilege_names(tables.semantics.gate.expression))
    layers: tuple[Tables | VariantDecl, ...] = (tables, *tables.variants)
    for layer in layers:
        for row in (*layer.core, *layer.any, *(row for table in layer.tables for row in table.rows)):
            readings = row.ambiguous.readings if row.ambiguous is not None else ()
            for body in (row.body, *(reading.body for reading in readings)):
                for cell in (body.requires, body.each):
                    if cell is not None and cell.expression is not None:
                        yield from (name.text for name in privilege_names(cell.expression))
                for effect in body.effects:
                    yield from (name.text for term in effect.terms or () for name in term.names)
