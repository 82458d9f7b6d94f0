"""The Wasm that OPA compiles a policy to, against the reference meaning: every part of every decision."""

from __future__ import annotations

import random
from pathlib import Path

import filtered_policy
import pytest
import worlds
from checkout import ROOT
from wasm_engine import WasmEngine

from privtab import Embedded, pipeline
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.pipeline import policy_revision
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Grant, State


def engine_and_reference(program: Program, state: State, binary: Path) -> tuple[WasmEngine, Reference]:
    """The engine and the truth."""
    return WasmEngine(program, state, binary), Reference(program, state, policy_revision(program))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_part_of_every_decision_is_the_references(seed: int, tmp_path: Path, opa_binary: Path) -> None:
    total = allowed = 0
    for number in range(seed * 1000, seed * 1000 + 4):
        policy = tmp_path / f"{number}.yaml"
        policy.write_text(worlds.policy(number, features=worlds.FEATURES if number % 2 else ()), encoding="utf-8")
        program = pipeline.load_program(policy)
        state = worlds.state(program, number)
        engine, reference = engine_and_reference(program, state, opa_binary)
        requests = worlds.requests(program, number, 3)
        expected = [reference.decide(request) for request in requests]
        assert engine.decide_many(requests) == expected, policy.read_text()
        assert engine.allow_many(requests) == [decision.allowed for decision in expected]
        assert [engine.allow(request) for request in requests[:20]] == [decision.allowed for decision in expected[:20]]
        assert engine.decide(requests[0]) == expected[0]
        plain = [r for r in requests if r.plain]
        assert engine.allow_many(plain) == [reference.decide(request).allowed for request in plain]
        total += len(requests)
        allowed += sum(decision.allowed for decision in expected)
    assert total > 200
    assert 0.1 < allowed / total < 0.9


@pytest.mark.slow
def test_names_of_all_planes_mean_what_they_mean_elsewhere(tmp_path: Path, opa_binary: Path) -> None:
    """Also those that JSON in ASCII writes as two halves of a surrogate pair, which the JSON reader of OPA's Wasm misreads."""
    policy = tmp_path / "planes.yaml"
    policy.write_text(
        "{privtab: 1, system: planes, version: '1', entities: {top: {thing: }}, privileges: [READ],\n"
        "semantics: {inheritance: down, deny: overrides}, tables: {thing: {see: READ (thing)}}}",
        encoding="utf-8",
    )
    chance = random.Random(20703)
    names = [
        chr(chance.choice([plane << 16, 0]) + chance.randint(0xA0, 0xD7FF)) for plane in range(17) for _ in range(25)
    ]
    names = sorted(set(names))
    granted = frozenset(names[::2])
    state = State(
        grants=(
            Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("top", "open")),
            *(
                Grant(grantee="user:ann", effect="deny", privilege="READ", entity=Entity("thing", f"open/{name}"))
                for name in names[::3]
            ),
            *(
                Grant(grantee=f"user:{name}", effect="allow", privilege="READ", entity=Entity("thing", f"x/{name}"))
                for name in granted
            ),
        )
    )
    engine, reference = engine_and_reference(pipeline.load_program(policy), state, opa_binary)
    requests = [Request(user="ann", action="see", resource=Entity("thing", f"open/{name}")) for name in names]
    requests += [Request(user=name, action="see", resource=Entity("thing", f"x/{name}")) for name in names]
    expected = [reference.decide(request) for request in requests]
    assert engine.allow_many(requests) == [decision.allowed for decision in expected]
    assert [engine.allow(request) for request in requests] == [decision.allowed for decision in expected]
    assert engine.decide_many(requests) == expected
    things = [request.resource for request in requests[: len(names)]]
    seen = Request(user="ann", action="see", resource=Entity("thing", ""))
    assert engine.visible(seen, things) == [at for at in range(len(names)) if expected[at].allowed]


@pytest.fixture(scope="module")
def shipped(opa_binary: Path) -> tuple[WasmEngine, Reference, Program]:
    """A policy of the random ones, with many requests."""
    folder = ROOT / "policy_src" / "cdap"
    program = pipeline.load_program(folder / "final.yaml")
    engine, reference = engine_and_reference(program, worlds.state(program, 5), opa_binary)
    return engine, reference, program


@pytest.mark.slow
def test_listings_are_filtered(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    engine, reference, program = shipped
    items = [Entity("dataset", f"x/{'xy'[n % 2]}/d{n}") for n in range(2500)]
    items += [r.resource for r in worlds.requests(program, 3, 40) if r.resource.type == "dataset"]
    items = [item for item in items if len(item.names) == 3]
    for user in ("ann", "bob", "nobody"):
        request = Request(user=user, action="list", resource=Entity("dataset", ""))
        expected = [
            at
            for at, item in enumerate(items)
            if reference.decide(Request(user=user, action="list", resource=item)).allowed
        ]
        assert engine.visible(request, items) == expected


@pytest.mark.slow
def test_the_filters_that_apply_are_those_of_the_engine_in_process(tmp_path: Path, opa_binary: Path) -> None:
    program, state, files = filtered_policy.made(tmp_path)
    engine, embedded = WasmEngine(program, state, opa_binary), Embedded(*files)
    for user in filtered_policy.USERS:
        tables = [
            Request(user=user, action="row_filter", resource=Entity("table", id_)) for id_ in ("m/s/t", "m/s/hidden")
        ]
        assert engine.applied(tables) == [embedded.row_filter(user, request.resource) for request in tables]
        columns = [
            Request(user=user, action="column_mask", resource=Entity("column", f"m/s/t/{c}")) for c in ("ssn", "x")
        ]
        assert engine.applied(columns) == embedded.column_masks(user, [request.resource for request in columns])
