"""Below an entity that all objects of a request share lies each of them: verdicts are those of worlds in which everything is tried."""

from __future__ import annotations

import pytest
import rooted_policies
from generated_programs import lowered
from seeds import seeds

from privtab.base import SourceFile
from privtab.pipeline import load_program
from privtab.reference import EvaluationContext, Reference
from privtab_analysis.diff import Verdict, diff

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {server: {catalog: {table: }}}
types: {server: {single: true}}
privileges: [READ]
tables:
  table: {copy: {with: {object: OBJECT}, requires: CONDITION}}
"""


@pytest.mark.parametrize("object_", ["table", "server", "[server, table]"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("READ (object) or READ (server or below)", "READ (server or below)"),
        ("READ (object) and READ (server or below)", "READ (object)"),
    ],
)
def test_what_is_held_on_an_object_is_held_below_the_root(object_: str, first: str, second: str) -> None:
    text = POLICY.replace("OBJECT", object_)
    before, after = (load_program(SourceFile.of("lake.yaml", text.replace("CONDITION", c))) for c in (first, second))
    assert [row.verdict for row in diff(before, after).rows] == [Verdict.EQUAL]


def test_the_root_is_one_entity_beside_another_root() -> None:
    text = POLICY.replace("OBJECT", "server").replace("{server: {", "{hall: {}, server: {")
    before, after = (
        load_program(SourceFile.of("lake.yaml", text.replace("CONDITION", c)))
        for c in ("READ (object)", "READ (server)")
    )
    assert [row.verdict for row in diff(before, after).rows] == [Verdict.EQUAL]


def compare(seed: int, number: int = 25) -> Verdict:
    """Compare the verdict on two policies with the answers of both in states that are tried."""
    before, after = (lowered(text)[0] for text in rooted_policies.pair(seed))
    row = next((row for row in diff(before, after).rows if row.name == "/".join(rooted_policies.RULE)), None)
    found = Verdict.EQUAL if row is None else row.verdict
    rule, other = (program.rules[rooted_policies.RULE] for program in (before, after))
    for request, state in rooted_policies.asked(before, rule, seed, number):
        was, now = (EvaluationContext(Reference(program, state), request) for program in (before, after))
        answers = was.holds(was.condition(rule)), now.holds(now.condition(other))
        if answers == (False, True):
            assert found in (Verdict.WIDER, Verdict.INCOMPARABLE), (seed, request, state)
        if answers == (True, False):
            assert found in (Verdict.NARROWER, Verdict.INCOMPARABLE), (seed, request, state)
    return found


@pytest.mark.parametrize("seed", seeds(range(40), quick=5))
def test_verdicts_are_those_of_all_that_is_tried(seed: int) -> None:
    assert compare(seed) is not Verdict.UNKNOWN


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_verdicts_of_many_policies(search_seed: int, first: int) -> None:
    for seed in range(search_seed + first, search_seed + first + 500):
        compare(seed)
