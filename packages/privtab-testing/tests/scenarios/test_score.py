"""Mutation score: each kind of fault is noticed, or not, or no fault; and what is called no fault is none, by brute force."""

from __future__ import annotations

import dataclasses

import pytest
import small_policies
from shop_policy import Reads

from privtab.ir import Program
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.mutants import Mutant, Mutants
from privtab_testing.scenarios.prove import Score, Scoring, observe, score

HEAD = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: }}
privileges: [READ, WRITE]
semantics: {SEMANTICS}
tables:
  shelf:
"""


def scored(plan: CasePlan) -> Score:
    return score(plan, observe(plan, plan.cases))


def survivors(
    reads: Reads, row: str, needs: str, semantics: str = "inheritance: none, owner: {kinds: [user]}"
) -> Score:
    return scored(reads(f"needs: [{needs}]", HEAD.replace("SEMANTICS", semantics) + f"    do: {row}\n"))


ROWS = {
    "one": ("READ (shelf)", "{ask: do shelf:s/a, by: [[READ (shelf:s/a)]]}"),
    "all": ("READ + WRITE (shelf)", "{ask: do shelf:s/a, by: [[READ (shelf:s/a), WRITE (shelf:s/a)]]}"),
    "any": ("READ (store) or owner (shelf)", "{ask: do shelf:s/a, by: [[READ (store:s)], [owner (shelf:s/a)]]}"),
    "flag": (
        "READ (shelf) when really",
        "{ask: do shelf:s/a, by: anyone}, {ask: do shelf:s/a, flags: [really], by: [[READ (shelf:s/a)]]}",
    ),
    "each": (
        "{requires: READ (store), each: READ (shelf)}",
        "{ask: do shelf:s, by: [[READ (store:s)]]}, {ask: do shelf:s/a, by: [[READ (store:s), READ (shelf:s/a)]]}",
    ),
    "report": (
        "{requires: READ (store), each: READ (shelf), report: errors}",
        "{ask: do shelf:s, by: [[READ (store:s)]]}, {ask: do shelf:s/a, by: [[READ (store:s), READ (shelf:s/a)]], report: errors}",
    ),
    "effects": (
        "{requires: READ (shelf), grants: WRITE (shelf)}",
        "{ask: do shelf:s/a, by: [[READ (shelf:s/a)]], effects: ['grant WRITE ({resource})']}",
    ),
    "object": (
        "{with: {to: [store, shelf]}, requires: READ (to)}",
        "{ask: do shelf:s/a, with: {to: 'store:t'}, by: [[READ (store:t)]]}, {ask: do shelf:s/a, with: {to: 'shelf:t/b'}, by: [[READ (shelf:t/b)]]}",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_complete_ways_notice_every_fault(reads: Reads, name: str) -> None:
    found = survivors(reads, *ROWS[name])
    assert (found.survived, found.percent) == ((), 100)
    assert found.killed > 0


def test_cells_cover_the_condition_of_a_gate(reads: Reads) -> None:
    found = survivors(
        reads, "READ (shelf)", "{ask: do shelf:s/a, by: [[member (store:s), READ (shelf:s/a)]]}", "gate: member (store)"
    )
    assert found.survived == ()


@pytest.mark.parametrize(
    ("name", "weaker", "unseen"),
    [
        ("flag", "{ask: do shelf:s/a, by: anyone}", "`READ (shelf)` always, not only when `really`"),
        ("each", "{ask: do shelf:s, by: [[READ (store:s)]]}", "`each` dropped"),
        ("effects", "{ask: do shelf:s/a, by: [[READ (shelf:s/a)]]}", "without `grant WRITE (shelf)`"),
        ("object", "{ask: do shelf:s/a, with: {to: 'store:t'}, by: [[READ (store:t)]]}", "never (where `to` is a `shelf`)"),
    ],
)  # fmt: skip
def test_mutants_that_no_case_reaches_survive(reads: Reads, name: str, weaker: str, unseen: str) -> None:
    found = survivors(reads, ROWS[name][0], weaker)
    if name == "flag":
        # Asked without the flag alone, the drop of the flag is seen and what it asks for is not.
        assert unseen not in [mutant.text for mutant in found.survived]
        assert "`WRITE (shelf)` for `READ (shelf)`" in [mutant.text for mutant in found.survived]
    else:
        assert unseen in [mutant.text for mutant in found.survived]


def test_allows_alone_do_not_detect_wider_mutants(reads: Reads) -> None:
    policy = HEAD.replace("SEMANTICS", "inheritance: none") + "    do: READ (shelf)\n"
    text = """\
        state: {grants: [{grantee: "user:ann", effect: allow, privilege: READ, entity: "shelf:s/a"}]}
        cases: [{user: ann, action: do, resource: "shelf:s/a", decision: allow}]
        """
    assert [m.text for m in scored(reads(text, policy)).survived] == ["without `READ (shelf)`: anyone may"]


def test_equivalent_mutants_are_no_faults(reads: Reads) -> None:
    found = survivors(reads, "READ (shelf) or READ + WRITE (shelf)", "{ask: do shelf:s/a, by: [[READ (shelf:s/a)]]}")
    assert found.survived == ()
    assert found.equivalent > 0


def test_a_mutant_can_be_killed_through_a_row_that_requires_it(reads: Reads) -> None:
    rows = "    do: READ (shelf)\n    peek: can do (shelf)\n"
    policy = HEAD.replace("SEMANTICS", "inheritance: none") + rows
    plan = reads("needs: [{ask: peek shelf:s/a, by: [[READ (shelf:s/a)]]}]", policy)
    assert [m.original.operation for m in scored(plan).survived] == []


def test_a_case_that_fails_notices_nothing(reads: Reads) -> None:
    plan = reads(
        "needs: [{ask: do shelf:s/a, by: [[READ (shelf:s/a)]]}]",
        HEAD.replace("SEMANTICS", "inheritance: none") + "    do: READ (shelf)\n",
    )
    assert score(plan, observe(plan, [])).killed == 0


@pytest.mark.slow
def test_equivalent_rows_differ_in_no_state(subtests: pytest.Subtests) -> None:
    for seed in range(5):
        with subtests.test(seed=seed):
            compare_equivalence(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 240, 40))
def test_equivalent_rows_differ_in_no_state_of_generated_policies(
    subtests: pytest.Subtests, search_seed: int, first: int
) -> None:
    for seed in range(search_seed + first, search_seed + first + 40):
        with subtests.test(seed=seed):
            compare_equivalence(seed)


def compare_equivalence(seed: int) -> None:
    """Compare which mutants of a random policy are called equivalent with the answers in all states; nothing where it is not sound."""
    program = small_policies.program(small_policies.policy(seed))
    if program is None:
        return
    scoring = Scoring(program, program.rules, {})
    mutants = [m for rule in program.rules.values() for m in Mutants(program).of(rule)]
    # Few of each policy: every one is asked in up to 4,096 states.
    for mutant in (m for number, m in enumerate(mutants) if m.change != "effect" and number % 5 == seed % 5):
        told_apart = differs(program, mutant)
        if told_apart is not None:
            assert scoring.is_equivalent(mutant) is not told_apart, (mutant.original.id, mutant.text)


def differs(program: Program, mutant: Mutant) -> bool | None:
    """Whether some state and some request tell a mutant from its rule; None where there are too many states."""
    key = mutant.rule.entity, mutant.rule.operation
    other = dataclasses.replace(program, rules={**program.rules, key: mutant.rule})
    for request in small_policies.requests(program, mutant.original):
        states = small_policies.states([(program, mutant.original), (other, mutant.rule)], request)
        if states is None:
            return None
        if any(
            small_policies.allows(program, state, request) is not small_policies.allows(other, state, request)
            for state in states
        ):
            return True
    return False


def test_a_report_that_no_case_speaks_of_could_be_lost(reads: Reads) -> None:
    row, needs = ROWS["report"]
    found = survivors(reads, row, needs.replace(", report: errors", ""))
    assert [mutant.change for mutant in found.survived] == ["report"]
