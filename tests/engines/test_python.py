"""The `python` engine against the reference meaning, on random worlds: every part of every decision."""

from __future__ import annotations

import json
from pathlib import Path

import generated_programs
import pytest
import worlds

from privtab import pipeline
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import MANY, PythonEngine
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State

CHAIN = """\
privtab: 1
system: world
version: "1"
entities: {catalog: {table: }}
privileges: [READ, WRITE, LAST]
semantics: {inheritance: down}
tables:
  table:
"""


def differences(seed: int, folder: Path, *, policies: int, states: int, per_rule: int) -> tuple[int, int, list[str]]:
    """How many requests, how many allowed, and every difference as text to reproduce it by."""
    total = allowed = 0
    found: list[str] = []
    for number in range(seed * 1000, seed * 1000 + policies):
        policy = folder / f"{number}.yaml"
        policy.write_text(worlds.policy(number, features=worlds.FEATURES if number % 2 else ()), encoding="utf-8")
        program = pipeline.load_program(policy)
        artifacts = policy_artifacts(program)
        for turn in range(number * 100, number * 100 + states):
            state = worlds.state(program, turn)
            reference = Reference(program, state, artifacts.revision)
            engine = PythonEngine(artifacts.program, Index(index_document(program, state)))
            requests = worlds.requests(program, turn, per_rule)
            many = engine.allow_many(requests)
            explained = engine.decide_many(requests)
            for at, request in enumerate(requests):
                expected = reference.decide(request)
                total += 1
                allowed += expected.allowed
                if (
                    engine.allow(request) != expected.allowed
                    or many[at] != expected.allowed
                    or explained[at] != expected
                ):
                    text = f"{json.dumps(explained[at].to_json())}\nreference: {json.dumps(expected.to_json())}"
                    found.append(f"{json.dumps(request.to_json())}\npython: {text}\n{policy.read_text()}\n{state}")
    return total, allowed, found


def test_rows_of_which_each_asks_twice_for_the_next_are_decided_one_by_one_and_in_columns() -> None:
    """Written out, the condition of the first row has a billion atoms."""
    last = 30
    asked = [f"can r{n + 1} (table)" for n in range(last)]
    rows = [f"r{n}: ({next_} and READ (table)) or ({next_} and WRITE (table))" for n, next_ in enumerate(asked)]
    program = generated_programs.lowered(CHAIN + "".join(f"    {row}\n" for row in (*rows, f"r{last}: LAST (table)")))[
        0
    ]
    state = State(
        grants=tuple(
            Grant(grantee="user:ann", effect="allow", privilege=privilege, entity=Entity("table", f"c/{table}"))
            for table, privileges in (("a", ("WRITE", "LAST")), ("b", ("LAST",)), ("c", ("READ",)))
            for privilege in privileges
        )
    )
    artifacts = policy_artifacts(program)
    engine = PythonEngine(artifacts.program, Index(index_document(program, state)))
    reference = Reference(program, state, artifacts.revision)
    requests = [Request(user="ann", action="r0", resource=Entity("table", f"c/{table}")) for table in "abc"]
    assert [engine.allow(request) for request in requests] == [True, False, False]
    assert engine.allow_many(requests * MANY) == [True, False, False] * MANY
    assert [engine.decide(request) for request in requests] == [reference.decide(request) for request in requests]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_part_of_every_decision_is_the_references(seed: int, tmp_path: Path) -> None:
    total, allowed, found = differences(seed, tmp_path, policies=12, states=4, per_rule=6)
    assert not found, found[0]
    assert total > 4000
    assert allowed > total / 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_long_every_part_of_every_decision_is_the_references(seed: int, search_seed: int, tmp_path: Path) -> None:
    _, _, found = differences(search_seed + seed, tmp_path, policies=25, states=8, per_rule=10)
    assert not found, found[0]
