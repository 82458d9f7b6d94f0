"""P322: an entity type that no row uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.ir.nodes import Formula
    from privtab.model import nodes as m

KIND = FindingKind("P322", "type-without-rows", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Types without rows, also in variants, that no condition, effect or object uses, and that contain no other type.

    Principals are skipped: they exist for the state.
    """
    from privtab.ir.nodes import RESOURCE

    view = view_of(policy)
    named = {type_ for type_, _ in policy.rows}
    named |= {table.entity.value for variant in policy.tables.variants for table in variant.tables}
    named |= {entity.parent for entity in policy.entities.values() if entity.parent is not None}
    for rule in view.program.rules.values():
        named |= {slot_type for slot in rule.withs for slot_type in slot.types}
        named |= {effect.target.type for effect in rule.effects if effect.target.slot == RESOURCE}
        for condition in (rule.gate, rule.requires, rule.each):
            if condition is not None:
                named |= set(_targets(condition))
    for formula in view.alternative_conditions:
        named |= set(_targets(formula))
    for decl in policy.tables.entities:
        name = decl.name.value
        if name not in named and policy.entities[name].principal is None:
            yield KIND.at(
                decl.name.span,
                f"no row uses the type `{name}`",
                "no request can be made about it: add rows for it, or drop it",
            )


def _targets(formula: Formula) -> Iterator[str]:
    from privtab.ir.formula import atoms, references, targets_of

    yield from (target.type for atom in atoms(formula) for target in targets_of(atom))
    yield from (can.target.type for can in references(formula))
