"""What follows for conditions with `or below`: minimal sets, the solver, counterexamples and states agree."""

from __future__ import annotations

from itertools import islice, product

import generated_programs
import pytest
import small_policies
import worlds
from counterexamples import counterexample, request_settings
from seeds import seeds

from privtab.ir.canonical import canonical_form
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import reached_atoms
from privtab.ir.nodes import ByType, HasBelow, OwnsBelow, Program, Rule
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab_analysis.diff.witness_builder import WitnessBuilder

SEEDS = range(24)


def rules(program: Program) -> list[Rule]:
    """Those whose conditions ask about something below."""
    return [
        rule
        for rule in program.rules.values()
        if any(isinstance(a, HasBelow | OwnsBelow) for a in reached_atoms(program, rule.item_condition))
    ]


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=10))
def test_an_atom_entails_another_if_the_solver_says_so(seed: int) -> None:
    program = generated_programs.program(seed, "below")
    form, exact = canonical_form(program), ImplicationChecker(program)
    for rule in rules(program):
        atoms = [a for a in reached_atoms(program, rule.item_condition) if not isinstance(a, ByType)][:8]
        for first, second in product(atoms, repeat=2):
            assert form.entails(frozenset({first}), second) == exact.implies(first, second), f"{first} => {second}"


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=10))
def test_a_counterexample_is_a_state(seed: int) -> None:
    program = generated_programs.program(seed, "below")
    exact = ImplicationChecker(program)
    pairs = [(a, b) for a, b in product(rules(program), repeat=2) if a.entity == b.entity and a.withs == b.withs]
    for rule, other in pairs[:30]:
        f, g = rule.item_condition, other.item_condition
        for flags, types in islice(request_settings(program, rule, f, g), 4):
            facts = counterexample(exact, f, g, flags, types)
            assert (facts is None) == exact.implies(f, g, flags, types)
            if facts is not None:
                scene = WitnessBuilder(program, rule, types, facts)
                request = scene.request(worlds.stated_flags(rule, flags))
                context = EvaluationContext(Reference(program, small_policies.known(program, scene.state())), request)
                assert context.holds(f), (facts, scene.state())
                assert not context.holds(g), (facts, scene.state())


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=10))
def test_a_stronger_condition_allows_no_more_in_any_state(seed: int) -> None:
    program = generated_programs.program(seed, "below")
    exact = ImplicationChecker(program)
    pairs = [(a, b) for a, b in product(rules(program), repeat=2) if a.entity == b.entity and a is not b]
    implied = [
        (a, b)
        for a, b in pairs
        if not (a.withs or b.withs) and exact.always_implies(a, a.item_condition, b.item_condition)
    ]
    for turn in range(6):
        state = worlds.state(program, seed * 100 + turn)
        reference = Reference(program, state)
        for request in worlds.requests(program, seed * 100 + turn, 2):
            for rule, other in implied:
                if (request.resource.type, request.action) == (rule.entity, rule.operation):
                    context = EvaluationContext(reference, request)
                    if "" in context.complete and context.holds(rule.item_condition):
                        assert context.holds(other.item_condition), (rule.id, other.id, state)
