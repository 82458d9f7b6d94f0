"""Conditions without the atoms that others beside them make superfluous mean the same."""

from __future__ import annotations

import generated_programs
import hostile
import pytest

from privtab.ir.canonical import canonical_form
from privtab.ir.exact import ImplicationChecker, unrelated
from privtab.ir.facts import FactSemantics
from privtab.ir.formula import direct_atoms, reached_atoms
from privtab.ir.nodes import Formula, Program
from privtab.ir.solver import NeededAtoms
from privtab.ir.some_minimal_sets import absorbed

HEAD = "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: {shelf: {box: }}}\nprivileges: [A, B]\n"


def condition(semantics: str, cell: str) -> tuple[Program, Formula]:
    program, _ = generated_programs.lowered(f"{HEAD}semantics: {{{semantics}}}\ntables: {{box: {{open: {cell}}}}}\n")
    return program, program.rules["box", "open"].item_condition


@pytest.mark.parametrize(
    ("semantics", "cell", "remaining"),
    [
        ("inheritance: down", "A (shop) or A (shelf) or B (shop)", {"A shelf", "B shop"}),
        ("inheritance: down", "A (shop) and A (shelf) and B (shop)", {"A shop", "B shop"}),
        ("inheritance: none", "A (shop) or A (shelf)", {"A shop", "A shelf"}),
        # A denial on the shelf leaves what was granted above it.
        ("inheritance: down, deny: overrides", "A (shop) or A (shelf)", {"A shop", "A shelf"}),
        ("inheritance: down, deny: overrides", "A (shop) and A (shelf) and A (box)", {"A shop", "A box"}),
        ("inheritance: down, owner: {holds: [A]}", "A (box) or owner (box) or B (box)", {"A box", "B box"}),
        ("inheritance: down, owner: {holds: [A]}", "A (box) and owner (box)", {"owner box"}),
    ],
)
def test_remaining_atoms(semantics: str, cell: str, remaining: set[str]) -> None:
    program, formula = condition(semantics, cell)
    shorter = absorbed(canonical_form(program), formula)
    assert {f"{getattr(a, 'privilege', 'owner')} {a.target.type}" for a in direct_atoms(shorter)} == remaining  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(24))
def test_absorption_keeps_the_meaning(seed: int) -> None:
    program = generated_programs.program(seed)
    exact, form = ImplicationChecker(program), canonical_form(program)
    for rule in program.rules.values():
        formula = rule.item_condition
        shorter = absorbed(form, formula)
        assert exact.always_implies(rule, formula, shorter)
        assert exact.always_implies(rule, shorter, formula)
        slots = {slot.name: slot.types for slot in rule.withs}
        if unrelated(FactSemantics(program), [shorter], slots):
            needed = NeededAtoms(FactSemantics(program)).needed([formula], slots, (), form)
            assert needed == set(reached_atoms(program, shorter))


def test_long_lists_are_looked_at_once() -> None:
    program, _ = generated_programs.lowered(hostile.nested_alternatives(4000))
    shorter = absorbed(canonical_form(program), program.rules["shelf", "load"].item_condition)
    assert {a.target.type for a in direct_atoms(shorter)} == {"shelf"}  # type: ignore[union-attr]
    assert len(list(direct_atoms(shorter))) == 2000
