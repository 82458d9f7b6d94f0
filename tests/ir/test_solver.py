"""What the solver says of conditions is what listing minimal sets says, on generated policies."""

from __future__ import annotations

from functools import partial
from itertools import islice, product

import generated_programs
import pytest
from counterexamples import counterexample, request_settings

from privtab.ir.canonical import canonical_form
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import FactSemantics
from privtab.ir.formula import reached_atoms
from privtab.ir.nodes import Program, Rule
from privtab.ir.solver import NeededAtoms


def pairs(program: Program, other: Program) -> list[tuple[Rule, Rule]]:
    rules = [(a, b) for a, b in product(program.rules.values(), other.rules.values()) if a.entity == b.entity]
    return [(a, b) for a, b in rules if a.withs == b.withs][:40]


@pytest.mark.parametrize("seed", range(12))
def test_the_solver_and_the_enumeration_agree_within_a_program(seed: int) -> None:
    program = generated_programs.program(seed)
    exact = ImplicationChecker(program)
    for rule, other in pairs(program, program):
        f, g = rule.item_condition, other.item_condition
        for flags, types in islice(request_settings(program, rule, f, g), 8):
            assert exact.implies(f, g, flags, types) == (counterexample(exact, f, g, flags, types) is None)


@pytest.mark.parametrize("seed", range(12))
def test_the_solver_and_the_enumeration_agree_between_two_programs(seed: int) -> None:
    program, other_program = generated_programs.program(seed), generated_programs.program(seed + 1)
    shared = [p for p in pairs(program, other_program) if p[0].entity in other_program.entities]
    exact = ImplicationChecker(program, other_program)
    for rule, other_rule in shared:
        f, g = rule.call_condition, other_rule.item_condition
        for flags, types in islice(request_settings(program, rule, f), 4):
            assert exact.implies(f, g, flags, types) == (counterexample(exact, f, g, flags, types) is None)


@pytest.mark.parametrize("seed", range(12))
def test_the_fewest_facts_are_no_more_than_those_of_the_enumeration(seed: int) -> None:
    program = generated_programs.program(seed)
    exact = ImplicationChecker(program)
    semantics, solver = exact.semantics, exact.solver
    for rule, other in pairs(program, program)[:15]:
        f, g = rule.item_condition, other.item_condition
        facts = frozenset().union(*(semantics.every.about(atom) for h in (f, g) for atom in reached_atoms(program, h)))
        for flags, types in islice(request_settings(program, rule, f, g), 4):
            listed = counterexample(exact, f, g, flags, types)
            solver.renew()
            asked = [solver.literal(f), -solver.literal(g), *solver.with_flags(flags)]
            slots = {slot: (type_,) for slot, type_ in types.items()}
            found = solver.fewest(asked, slots, partial(sorted, facts, key=repr))
            assert (found is None) == (listed is None)
            if found is not None and listed is not None:
                assert len(found.facts) <= len(listed)
                assert semantics.holds(f, found.facts, flags, types)
                assert not semantics.holds(g, found.facts, flags, types)


@pytest.mark.parametrize("seed", range(12))
def test_one_question_about_all_requests_is_every_question(seed: int) -> None:
    program = generated_programs.program(seed)
    exact = ImplicationChecker(program)
    for rule, other in pairs(program, program):
        f, g = rule.item_condition, other.item_condition
        each = all(exact.implies(f, g, flags, types) for flags, types in request_settings(program, rule, f, g))
        assert exact.always_implies(rule, f, g) == each


@pytest.mark.parametrize("seed", range(24))
def test_needed_atoms_are_those_of_minimal_sets(seed: int) -> None:
    program = generated_programs.program(seed)
    form = canonical_form(program)
    for rule in program.rules.values():
        condition = rule.item_condition
        listed = {
            atom
            for flags, types in request_settings(program, rule)
            for atoms in form.minimal_sets(condition, flags, types)
            for atom in atoms
        }
        slots = {slot.name: slot.types for slot in rule.withs}
        needed = NeededAtoms(FactSemantics(program)).needed([condition], slots, (), form)
        assert needed == listed
