"""Cells and faults of policies in which a type nests."""

from __future__ import annotations

import dataclasses

import generated_programs
import pytest
import worlds
from shop_policy import Reads

from privtab.base import Undecided
from privtab.reference import Reference
from privtab_testing.scenarios.mutants import Mutants
from privtab_testing.scenarios.prove import Scoring, coverage, observe, score, suggested

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: {item: }}}
types: {shelf: {nested: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  shelf:
    open: READ (parent)
  item:
    open: READ (every shelf)
    find: owner (any shelf)
"""
NEEDS = """needs:
  - {ask: open shelf:s/a, by: [[READ (store:s)]]}
  - {ask: open shelf:s/a/b, by: [[READ (shelf:s/a)]]}
  - {ask: open item:s/a/b/i, by: [[READ (shelf:s/a), READ (shelf:s/a/b)]]}
  - {ask: find item:s/a/b/i, by: [[owner (shelf:s/a)], [owner (shelf:s/a/b)]]}
"""


def test_faults_name_another_level(reads: Reads) -> None:
    program = reads(NEEDS, POLICY).program
    found = {
        (type_, operation): [mutant.text for mutant in Mutants(program).of(rule)]
        for (type_, operation), rule in program.rules.items()
    }
    assert "`READ (shelf)` for `READ (parent of shelf)`" in found["shelf", "open"]
    assert "`READ (any shelf)` for `READ (every shelf)`" in found["item", "open"]
    assert "`READ (store)` for `READ (every shelf)`" in found["item", "open"]
    assert "`owner (every shelf)` for `owner (any shelf)`" in found["item", "find"]


def test_needs_on_two_levels_prove_every_cell_and_notice_every_fault(reads: Reads) -> None:
    plan = reads(NEEDS, POLICY)
    observed = observe(plan, plan.cases)
    assert [cell.text for cell in coverage(plan, observed).untested] == []
    assert [mutant.text for mutant in score(plan, observed).survived] == []


def test_needs_on_one_level_do_not_tell_levels_apart(reads: Reads) -> None:
    plan = reads("needs: [{ask: open item:s/a/i, by: [[READ (shelf:s/a)]]}]", POLICY)
    survived = [mutant.text for mutant in score(plan, observe(plan, plan.cases)).survived]
    assert "`READ (any shelf)` for `READ (every shelf)`" in survived


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_state_distinguishes_equivalent_mutants(seed: int) -> None:
    compare_equivalence(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 80, 10))
def test_no_state_distinguishes_equivalent_mutants_of_many_policies(
    subtests: pytest.Subtests, search_seed: int, first: int
) -> None:
    for seed in range(search_seed + first, search_seed + first + 10):
        with subtests.test(seed=seed):
            compare_equivalence(seed)


def compare_equivalence(seed: int) -> None:
    """Compare which mutants of a generated policy are called equivalent with the answers in generated states."""
    further = ("attributes",) if seed % 2 else ("below",)
    program = generated_programs.program(seed, "nested", "implies", *further)
    scoring = Scoring(program, program.rules, {})
    states = [worlds.state(program, seed * 100 + number) for number in range(6)]
    references = [Reference(program, state) for state in states]
    # Without `each` or `creates`, a request must name its entity.
    requests = [r for r in worlds.requests(program, seed, 6) if references[0].vocabulary.complete(r.resource)]
    mutants = [m for rule in program.rules.values() for m in Mutants(program).of(rule)]
    for mutant in (
        m for number, m in enumerate(mutants) if m.change not in ("effect", "report") and number % 4 == seed % 4
    ):
        try:
            if not scoring.is_equivalent(mutant):
                continue
        except Undecided:
            continue
        key = mutant.rule.entity, mutant.rule.operation
        changed = dataclasses.replace(program, rules={**program.rules, key: mutant.rule})
        for state, reference in zip(states, references, strict=True):
            other = Reference(changed, state)
            for request in requests:
                if (request.resource.type, request.action) == key:
                    answers = reference.decide(request).allowed, other.decide(request).allowed
                    assert answers[0] is answers[1], (mutant.text, request)


def test_calls_without_the_last_name_are_suggested_with_a_slash_at_their_end(reads: Reads) -> None:
    policy = POLICY.partition("tables:")[0] + (
        "tables:\n  shelf: {list: {requires: READ (store), each: WRITE (shelf)}}\n"
        "  item: {list: {requires: READ (shelf), each: WRITE (item)}}\n"
    )
    plan = reads("needs: [{ask: list item:s/a/i, by: [[READ (shelf:s/a), WRITE (item:s/a/i)]]}]", policy)
    text = suggested(plan, coverage(plan, observe(plan, [])), None)
    assert "ask: [list shelf:s/, list shelf:s/sh/]" in text
    plan = reads(text, policy)
    observed = observe(plan, plan.cases)
    assert coverage(plan, observed).untested == ()


def test_suggestions_tell_levels_apart(reads: Reads) -> None:
    policy = POLICY + "    list: {requires: READ (first shelf), each: READ (item) and can open (shelf)}\n"
    plan = reads("needs: [{ask: open item:s/a/i, by: [[READ (shelf:s/a)]]}]", policy)
    text = suggested(plan, coverage(plan, observe(plan, [])), None)
    # The parent of a shelf at the top is the store.
    assert '"open shelf:s/sh", "open item' not in text
    plan = reads(text, policy)
    reference = Reference(plan.program, plan.worlds[-1])
    assert all(reference.decide(case.request).allowed is case.expected.allowed for case in plan.cases)
    observed = observe(plan, plan.cases)
    assert coverage(plan, observed).untested == ()
    assert [mutant.text for mutant in score(plan, observed).survived] == []


def test_faults_about_an_object_that_a_request_leaves_out_are_looked_for(reads: Reads) -> None:
    policy = POLICY + '    copy: {with: {to: [shelf, none]}, requires: "READ (to) or READ (item)"}\n'
    plan = reads("needs: [{ask: open item:s/a/i, by: [[READ (shelf:s/a)]]}]", policy)
    plan = reads(suggested(plan, coverage(plan, observe(plan, [])), None), policy)
    observed = observe(plan, plan.cases)
    assert [mutant.text for mutant in score(plan, observed).survived] == []


def test_the_nearest_is_told_from_any_other_level(reads: Reads) -> None:
    policy = (
        POLICY.partition("tables:")[0]
        + "tables:\n  item: {open: owner (shelf), see: owner (shelf) or WRITE (parent)}\n"
    )
    plan = reads("needs: [{ask: open item:s/a/i, by: [[owner (shelf:s/a)]]}]", policy)
    plan = reads(suggested(plan, coverage(plan, observe(plan, [])), None), policy)
    observed = observe(plan, plan.cases)
    assert coverage(plan, observed).untested == ()
    assert [mutant.text for mutant in score(plan, observed).survived] == []
