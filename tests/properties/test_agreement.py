"""The reference and a real OPA give the same decisions, with the same reasons, in worlds that nobody thought of."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests as http
import worlds
from engine_agreement import compare, differences, differences_at, put_state, serving
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document

SEEDS = st.integers(min_value=0, max_value=2**31)


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_reference_and_opa_agree_on_every_request(opa_binary: Path, sharded: bool) -> None:
    total = allowed = 0

    @settings(
        max_examples=1,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @example(seed=65228)  # Below an entity, an inactive role holds what an active one holds.
    @given(seed=SEEDS)
    def worlds_agree(seed: int) -> None:
        nonlocal total, allowed
        count, yes, found = compare(seed, opa_binary, policies=3, states=3, per_rule=2, sharded=sharded)
        total, allowed = total + count, allowed + yes
        assert not found, f"{len(found)} of {count} differ; the first:\n{found[0]}"

    worlds_agree()
    assert total >= 300
    assert 0.1 < allowed / total < 0.9, "worlds in which nearly all answers are the same prove little"


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharded", [pytest.param(False, id="whole"), pytest.param(True, marks=pytest.mark.long, id="sharded")]
)
def test_reference_and_opa_agree_where_a_type_nests(opa_binary: Path, sharded: bool) -> None:
    total = allowed = 0
    for seed in (41,) if sharded else (42,):
        count, yes, found = compare(seed, opa_binary, policies=3, states=3, per_rule=3, sharded=sharded, nested=True)
        total, allowed = total + count, allowed + yes
        assert not found, f"{len(found)} of {count} differ; the first:\n{found[0]}"
    assert total > 150
    assert 0.1 < allowed / total < 0.9


@pytest.mark.slow
def test_reference_and_opa_agree_where_ids_are_flat(opa_binary: Path) -> None:
    total, allowed, unplaced = compare_flat(51, opa_binary)
    assert total > 100
    assert 0.05 < allowed / total < 0.9
    assert 0 < unplaced < total / 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_reference_and_opa_agree_where_ids_are_flat_in_many_worlds(
    opa_binary: Path, search_seed: int, seed: int
) -> None:
    compare_flat(search_seed + seed, opa_binary)


def compare_flat(seed: int, opa_binary: Path) -> tuple[int, int, int]:
    """Compare decisions where ids are flat. The numbers of requests, of allowed ones, and of those about entities without a place."""
    features = [("flat",), ("flat", "nested"), ("flat", *worlds.FEATURES), ("flat", "hierarchy", "implies")]
    texts = [worlds.policy(seed * 100 + number, f"world{number}", own) for number, own in enumerate(features)]
    total = allowed = unplaced = 0
    with serving(texts, opa_binary) as (url, loaded), http.Session() as session:
        for number, world in enumerate(loaded):
            for turn in range(3):
                state = worlds.state(world.program, seed * 1000 + number * 10 + turn)
                requests = worlds.requests(world.program, seed * 1000 + number * 10 + turn, 3)
                found = differences(session, url, world, state, requests)
                assert not found, f"{len(found)} of {len(requests)} differ; the first:\n{found[0]}"
                reference = Reference(world.program, state)
                engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
                decisions = [reference.decide(request) for request in requests]
                assert [engine.decide(request).allowed for request in requests] == [d.allowed for d in decisions]
                assert [engine.allow(request) for request in requests] == [d.allowed for d in decisions]
                total += len(requests)
                allowed += sum(decision.allowed for decision in decisions)
                unplaced += sum("error" in decision.context for decision in decisions)
    return total, allowed, unplaced


@pytest.mark.long
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("first", range(0, 48, 8))
def test_reference_and_opa_agree_on_very_many_requests(
    opa_binary: Path, search_seed: int, first: int, sharded: bool
) -> None:
    total = 0
    for seed in range(search_seed + first, search_seed + first + 8):
        count, _, found = compare(seed, opa_binary, policies=10, states=6, per_rule=2, sharded=sharded)
        total += count
        assert not found, f"{len(found)} of {count} differ; the first:\n{found[0]}"
    assert total >= 5_000


@pytest.mark.slow
def test_reference_and_opa_agree_on_what_lies_below_in_shards(opa_binary: Path) -> None:
    features = [("below", *worlds.SHARDED), ("below", "nested")]
    texts = [worlds.policy(8_000 + number, f"world{number}", features[number % 2]) for number in range(4)]
    below = total = 0
    with serving(texts, opa_binary, sharded=True) as (url, loaded), http.Session() as session:
        for number, world in enumerate(loaded):
            for seed in (80_000 + number * 10, 80_001 + number * 10):
                state, requests = worlds.state(world.program, seed), worlds.requests(world.program, seed, 2)
                found = differences(session, url, world, state, requests)
                assert not found, f"{len(found)} of {len(requests)} differ; the first:\n{found[0]}"
                total += len(requests)
                below += bool(index_document(world.program, state).get("below"))
    assert below
    assert total > 200


@pytest.mark.parametrize(
    ("policies", "sharded"),
    [
        pytest.param(1, False, id="1-whole"),
        pytest.param(1, True, id="1-sharded", marks=pytest.mark.slow),
        pytest.param(3, False, id="3-whole", marks=pytest.mark.slow),
        pytest.param(6, False, id="6-whole", marks=pytest.mark.long),
        pytest.param(6, True, id="6-sharded", marks=pytest.mark.long),
    ],
)
def test_opa_agrees_with_the_reference_at_every_moment_of_a_state_with_windows(
    opa_binary: Path, policies: int, sharded: bool
) -> None:
    total = allowed = 0
    features = [worlds.SHARDED, ()] if sharded else [worlds.FEATURES, (), ("nested", "below")]
    texts = [
        worlds.policy(7000 + number, f"world{number}", features[number % len(features)]) for number in range(policies)
    ]
    with serving(texts, opa_binary, sharded=sharded) as (url, loaded), http.Session() as session:
        for number, world in enumerate(loaded):
            for turn in range(2):
                seed = 70_000 + number * 10 + turn
                state = worlds.timed(worlds.state(world.program, seed), seed)
                put_state(session, url, world.program, state, sharded=sharded)
                requests = worlds.requests(world.program, seed, 1)
                moments = worlds.moments(state)
                for at in moments[:: max(len(moments) // 9, 1)]:
                    found = differences_at(session, url, world, state, requests, at)
                    assert not found, f"at {at}: {len(found)} of {len(requests)} differ; the first:\n{found[0]}"
                    reference = Reference(world.program, state.at(at))
                    total += len(requests)
                    allowed += sum(reference.decide(request).allowed for request in requests)
    assert total > policies * 160
    assert 0.1 < allowed / total < 0.9
