"""Engines over a state with windows: at every moment they decide as the reference does over the rows of that moment."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from wasm_engine import WasmEngine
from whole_states import merged

from privtab.engines.python import Opener, PythonEngine, WindowedIndex
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_bytes, index_document
from privtab.state.nodes import TABLES, State
from privtab.state.shards import content, shards

SEEDS = st.integers(min_value=0, max_value=2**31)


@settings(max_examples=4)
@given(policy=st.integers(0, 40), seed=SEEDS)
def test_the_python_engine_agrees_with_the_reference_at_every_moment(policy: int, seed: int) -> None:
    program = generated_programs.program(policy, *(worlds.FEATURES if policy % 2 else ()))
    state = worlds.timed(worlds.state(program, seed), seed)
    if not state.windows:
        return
    windowed = WindowedIndex(json.loads(index_bytes(program, state)[1]))
    artifacts = policy_artifacts(program)
    requests = worlds.requests(program, seed, 1)
    for at in worlds.moments(state):
        engine = PythonEngine(artifacts.program, windowed.at(at))
        reference = Reference(program, state.at(at), artifacts.revision)
        assert windowed.window(at).holds(at)
        for request in requests:
            assert engine.decide(request).to_json() == reference.decide(request).to_json(), (at, request)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(policy=st.integers(0, 40), seed=SEEDS)
def test_the_python_engine_agrees_with_the_reference_over_shards_with_windows(policy: int, seed: int) -> None:
    program = generated_programs.program(policy, *(worlds.SHARDED if policy % 2 else ()))
    state = worlds.timed(worlds.state(program, seed), seed)
    opener = Opener()
    parts = [opener.keep(content(key, document)) for key, document in shards(program, state).items()]
    artifacts = policy_artifacts(program)
    requests = worlds.requests(program, seed, 1)
    for at in worlds.moments(state):
        opened = opener.open(artifacts.program, parts, at)
        reference = Reference(program, state.at(at), artifacts.revision)
        assert opened.window.holds(at)
        for request in requests:
            assert opened.engine.decide(request).to_json() == reference.decide(request).to_json(), (at, request)


@settings(max_examples=20, deadline=None)
@given(policy=st.integers(0, 40), seed=SEEDS)
def test_shards_with_windows_together_are_one_index(policy: int, seed: int) -> None:
    program = generated_programs.program(policy, *(worlds.SHARDED if policy % 2 else ()))
    state = worlds.timed(worlds.state(program, seed), seed)
    assert merged(shards(program, state)) == index_document(program, state)


def test_an_index_changes_only_at_its_edges() -> None:
    program = generated_programs.program(3)
    state = worlds.timed(worlds.state(program, 5), 5)
    windowed = WindowedIndex(index_document(program, state))
    for at in worlds.moments(state):
        begin, end = windowed.window(at)
        for moment in (begin, end - 1):
            assert windowed.at(moment).tables == windowed.at(at).tables
            assert windowed.at(moment).users == windowed.at(at).users


def test_the_order_of_rows_does_not_change_the_index() -> None:
    program = generated_programs.program(3)
    state = worlds.timed(worlds.state(program, 5), 5)
    turned: Any = {table: tuple(reversed(getattr(state, table))) for table in TABLES}
    windows = {table: tuple(reversed(own)) for table, own in state.windows.items()}
    assert index_bytes(program, State(**turned, windows=windows)) == index_bytes(program, state)


@pytest.mark.slow
def test_wasm_agrees_with_the_reference_at_every_moment(opa_binary: Path) -> None:
    total = allowed = 0
    for number in range(4):
        program = generated_programs.program(number, *(("below",) if number % 2 else ()))
        artifacts = policy_artifacts(program)
        state = worlds.timed(worlds.state(program, number), number)
        clock = [0]
        engine = WasmEngine(program, state, opa_binary, clock=partial(clock.__getitem__, 0))
        requests = worlds.requests(program, number, 1)
        for at in worlds.moments(state):
            clock[0] = at
            expected = [Reference(program, state.at(at), artifacts.revision).decide(request) for request in requests]
            assert engine.decide_many(requests) == expected
            assert engine.allow_many(requests) == [decision.allowed for decision in expected]
            assert engine.allow(requests[0]) == expected[0].allowed
            total += len(requests)
            allowed += sum(decision.allowed for decision in expected)
    assert total > 500
    assert 0.05 < allowed / total < 0.95
