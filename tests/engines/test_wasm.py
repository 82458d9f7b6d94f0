"""The `wasm` engine against the reference meaning: the policy's Rego as OPA compiles it, every part of every decision."""

from __future__ import annotations

import json
import pickle
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import worlds

from privtab import pipeline
from privtab.engines.wasm import WasmEngine
from privtab.errors import InvalidRequest, PolicyError, UsageError
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.opa import wasm
from privtab.pipeline import policy_artifacts, wasm_modules
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.index import index
from privtab.state.nodes import Grant, State


def engine_and_reference(program: Program, state: State, binary: Path) -> tuple[WasmEngine, Reference]:
    """The engine and the truth."""
    artifacts = policy_artifacts(program)
    module = wasm.build(wasm_modules(program), artifacts.entrypoints, binary)
    engine = WasmEngine(module, artifacts.program, index(program, state))
    return engine, Reference(program, state, artifacts.revision)


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
    folder = Path(__file__).parents[2] / "policy_src" / "cdap"
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


def test_possibly_invalid_requests_are_checked_in_full(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    engine, _, program = shipped
    names = vocabulary(program)
    chance = random.Random(5)
    good = Request(user="ann", action="list", resource=Entity("dataset", "x/x/x"))
    assert engine.columns([good] * 200) == engine.allow_many([good] * 200)
    refused = 0
    for _ in range(300):
        path = "".join(chance.choice("xxx//%2é") for _ in range(chance.randint(0, 7)))
        odd = replace(good, resource=Entity("dataset", path))
        try:
            names.check(odd)
        except InvalidRequest:
            refused += 1
            assert engine.columns([*[good] * 150, odd]) is None, path
    assert refused > 200
    for spoilt in (
        replace(good, user=""),
        replace(good, user=None),  # type: ignore[arg-type]
        replace(good, action="fly"),
        replace(good, flags=frozenset({"force"})),
        good.to_json(),
    ):
        assert engine.columns([*[good] * 150, spoilt]) is None  # type: ignore[list-item]


def test_threads_take_turns(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    engine, reference, program = shipped
    requests = worlds.requests(program, 8, 2)
    expected = [reference.decide(request).allowed for request in requests]
    found: list[bool] = []

    def ask() -> None:
        found.append([engine.allow(request) for request in requests] == expected)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_another_process_makes_its_own_instance(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    engine, reference, program = shipped
    copy = pickle.loads(pickle.dumps(engine))  # noqa: S301  (our own)
    requests = worlds.requests(program, 9, 1)
    assert copy.allow_many(requests) == [reference.decide(request).allowed for request in requests]


@pytest.mark.slow
def test_memory_does_not_grow_with_each_call(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    engine, _, program = shipped
    requests = worlds.requests(program, 11, 20)

    def size() -> int:
        return engine._instance._memory.data_len(engine._instance._store)

    engine.decide_many(requests)
    before = size()
    for _ in range(20):
        engine.decide_many(requests)
    assert size() == before


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [(None, UsageError, "compile --wasm"), (b"\0asm nonsense", PolicyError, "cannot be run")],
)
def test_without_a_module_there_is_no_engine(
    module: bytes | None, error: type[Exception], message: str, shipped: tuple[WasmEngine, Reference, Program]
) -> None:
    program: dict[str, Any] = json.loads(json.dumps(dict(policy_artifacts(shipped[2]).program)))
    with pytest.raises(error, match=message):
        WasmEngine(module, program, {})


def test_half_a_surrogate_pair_in_a_state_is_refused(shipped: tuple[WasmEngine, Reference, Program]) -> None:
    _, _, program = shipped
    state = index(program, State()) | {"service_admins": {"half \ud800": True}}
    with pytest.raises(PolicyError, match=r"not valid Unicode: '\\ud800'"):
        WasmEngine(b"\0asm", dict(policy_artifacts(program).program), state)
