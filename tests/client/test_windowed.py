"""Clients of a state in which rows hold for a time: answers change when a row begins or ends to hold."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests as http

from privtab import Client, DecisionUnavailable, Embedded, Request, pipeline
from privtab.base.errors import PolicyError
from privtab.base.moments import ALWAYS, Window
from privtab.base.request import Entity
from privtab.bundle.pack import shard_bundles, shard_file, state_bundle
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.state.index import index_document
from privtab.state.nodes import Assignment, Grant, State

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {table:}}
privileges: [SELECT]
semantics: {inheritance: down, deny: overrides}
tables: {table: {load: SELECT (table)}}
"""
SECOND = 10**9
START = 1_800_000_000 * SECOND
REQUEST = Request(user="ann", action="load", resource=Entity("table", "m/t"))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    path = tmp_path / "lake.yaml"
    path.write_text(POLICY)
    return pipeline.load_program(path)


def timed(begin: int, end: int, denied: int | None = None) -> State:
    """A grant from `begin` until `end`, and a denial from `denied` on."""
    grants = [Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("catalog", "m"))]
    windows = [Window(begin, end)]
    if denied is not None:
        grants.append(Grant(grantee="user:ann", effect="deny", privilege="SELECT", entity=Entity("table", "m/t")))
        windows.append(Window(denied))
    return State(grants=tuple(grants), windows={"grants": tuple(windows)})


def written(folder: Path, program: Program, state: State) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
    return folder


class Clock:
    """A present moment that tests set."""

    def __init__(self, moment: int) -> None:
        self.moment = moment

    def __call__(self) -> int:
        return self.moment


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(START)
    for module in ("client._bundled", "engines.python"):
        monkeypatch.setattr(f"privtab.{module}.time_ns", clock)
    return clock


def test_answers_in_process_change_at_the_edges_of_windows(tmp_path: Path, program: Program, clock: Clock) -> None:
    folder = written(tmp_path / "b", program, timed(START + 5, START + 20, denied=START + 15))
    with Embedded(folder) as client:
        copies = [client, pickle.loads(pickle.dumps(client))]  # noqa: S301  (our own)
        for at, allowed in ((0, False), (4, False), (5, True), (14, True), (15, False), (20, False), (6, True)):
            clock.moment = START + at
            for copy in copies:
                assert copy.check("ann", "load", "table:m/t") is allowed, at
                assert copy.check_many([REQUEST] * 2) == [allowed] * 2
                assert copy.check_many([REQUEST] * 1500) == [allowed] * 1500, "in columns"
                assert copy.decide(REQUEST).allowed is allowed
                assert copy.visible("ann", "load", "table", ["m/t"]) == (["m/t"] if allowed else [])
        clock.moment = START + 15
        assert client.decide(REQUEST).context["missing"] == [["no deny SELECT (table:m/t) to user:ann"]] or (
            "deny" in json.dumps(client.decide(REQUEST).context)
        )


@pytest.mark.parametrize("sharded", [False, True])
def test_columns_are_decided_for_the_moment_of_each_call(
    tmp_path: Path, program: Program, clock: Clock, sharded: bool
) -> None:
    state = timed(START + 5, START + 20, denied=START + 15)
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program, sharded=sharded).bundle())
    bundles = shard_bundles(program, state) if sharded else {"state": state_bundle(program, state)}
    for key, bundle in bundles.items():
        (tmp_path / shard_file(key)).write_bytes(bundle)
    batches = Embedded(tmp_path).batches()
    for kernel in (batches, pickle.loads(pickle.dumps(batches))):  # noqa: S301  (our own)
        for at, allowed in ((0, False), (5, True), (14, True), (15, False), (6, True), (20, False)):
            clock.moment = START + at
            answers = kernel.decide_columns(["ann", "ben"], ["m/t"] * 2, action="load", type="table")
            assert answers.allowed.tolist() == [allowed, False], at
    clock.moment = START + 30
    always = written(tmp_path / "always", program, State(grants=state.grants[:1]))
    assert Embedded(always).batches().decide_columns(["ann"], ["m/t"], action="load", type="table").allowed.all()


@pytest.mark.parametrize("part", ["people", "catalog:m"])
def test_answers_in_process_change_at_the_edges_of_windows_in_shards(
    tmp_path: Path, program: Program, clock: Clock, part: str
) -> None:
    """Whether the row with a window is the people's or a shard's."""
    state = timed(START + 5, START + 20)
    other = Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("catalog", "n"))
    if part == "people":
        grants = (replace(state.grants[0], grantee="role:reader"), other)
        assignments = (Assignment(principal="user:ann", role="reader"),)
        state = State(grants=grants, assignments=assignments, windows={"assignments": state.windows["grants"]})
    else:
        state = State(grants=(*state.grants, other), windows={"grants": (*state.windows["grants"], ALWAYS)})
    bundles = shard_bundles(program, state)
    assert set(bundles) == {"people", "catalog:m", "catalog:n"}
    for key, bundle in bundles.items():
        (tmp_path / shard_file(key)).write_bytes(bundle)
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program, sharded=True).bundle())
    with Embedded(tmp_path) as client:
        for at, allowed in ((0, False), (5, True), (19, True), (20, False)):
            clock.moment = START + at
            assert client.check("ann", "load", "table:m/t") is allowed, at
            assert client.check_many([REQUEST] * 1500) == [allowed] * 1500, "in columns"
            assert client.check("ann", "load", "table:n/t")
        (tmp_path / shard_file("catalog:n")).unlink()
        assert client.refresh()
        clock.moment = START + 5
        assert client.check("ann", "load", "table:m/t")
        with pytest.raises(DecisionUnavailable, match="catalog:n"):
            client.check("ann", "load", "table:n/t")


@pytest.mark.slow
def test_opa_decides_by_its_own_clock_in_shards_and_clients_keep_no_answers(
    tmp_path: Path, program: Program, opa_binary: Path
) -> None:
    end = time.time_ns() + 6 * SECOND
    state = timed(end - 3600 * SECOND, end)
    files = {"policy": tmp_path / "policy.tar.gz"}
    files["policy"].write_bytes(policy_artifacts(program, sharded=True).bundle())
    for key, bundle in shard_bundles(program, state).items():
        files[shard_file(key).partition(".")[0]] = tmp_path / shard_file(key)
        (tmp_path / shard_file(key)).write_bytes(bundle)
    with (
        OpaServer(files, binary=opa_binary) as server,
        Client(server.url, system="lake", cache_size=100, cache_ttl=3600) as client,
    ):
        with Embedded(tmp_path) as embedded:
            assert client.revision() == embedded.revision()
        checks: list[Any] = [lambda: client.check("ann", "load", "table:m/t"), lambda: client.check_many([REQUEST] * 3)]
        if time.time_ns() < end - SECOND:
            assert [ask() for ask in checks] == [True, [True] * 3]
        time.sleep(max((end - time.time_ns()) / SECOND, 0) + 0.1)
        assert [ask() for ask in checks] == [False, [False] * 3]


def test_bundles_that_change_between_windows_and_none(tmp_path: Path, program: Program, clock: Clock) -> None:
    always = State(grants=timed(0, 1).grants)
    folder = written(tmp_path / "b", program, always)
    with Embedded(folder) as client:
        assert client.check("ann", "load", "table:m/t")
        written(folder, program, timed(START, START + 5))
        assert client.refresh()
        assert client.check("ann", "load", "table:m/t")
        clock.moment = START + 5
        assert not client.check("ann", "load", "table:m/t")
        written(folder, program, always)
        assert client.refresh()
        assert client.check("ann", "load", "table:m/t")


def test_an_engine_that_knows_no_windows_refuses_the_state(program: Program) -> None:
    with pytest.raises(PolicyError, match="not an index"):
        Index(index_document(program, timed(START, START + 5)))


@pytest.mark.slow
def test_opa_decides_by_its_own_clock_and_clients_keep_no_answers(
    tmp_path: Path, program: Program, opa_binary: Path
) -> None:
    end = time.time_ns() + 6 * SECOND
    folder = written(tmp_path / "b", program, timed(end - 3600 * SECOND, end))
    files = [folder / "policy.tar.gz", folder / "state.tar.gz"]
    with (
        OpaServer(files, binary=opa_binary) as server,
        Client(server.url, system="lake", cache_size=100, cache_ttl=3600) as client,
    ):
        assert (
            client.revision().state == index_document(program, timed(end - 3600 * SECOND, end))["windowed"]["revision"]
        )
        checks: list[Any] = [lambda: client.check("ann", "load", "table:m/t"), lambda: client.check_many([REQUEST] * 3)]
        if time.time_ns() < end - SECOND:
            assert [ask() for ask in checks] == [True, [True] * 3]
        body = {"input": REQUEST.to_json() | {"context": {"time": 0, "now": 0, "at": 0}}}
        time.sleep(max((end - time.time_ns()) / SECOND, 0) + 0.1)
        assert [ask() for ask in checks] == [False, [False] * 3]
        answer = http.post(f"{server.url}/v1/data/privtab/lake/allow", json=body, timeout=5).json()
        assert answer["result"] is False, "a request cannot choose its time"


@pytest.mark.slow
def test_rules_that_know_no_windows_find_no_state(tmp_path: Path, program: Program, opa_binary: Path) -> None:
    """Also where the request brings groups: a denial for a time must not be overlooked."""
    artifacts = pipeline.policy_artifacts(program)
    old = dict(artifacts.modules)
    lib = next(path for path in old if path.endswith("lib.rego"))
    old[lib], windows = old[lib].split("\n# Rows that hold for a time.")
    assert "windows.allow" in windows
    old[lib] += "\ndefault windowed := false\n\nscoped_now(_, _) := set()\n"
    for path, text in old.items():
        file = tmp_path / "rego" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    document = index_document(program, timed(START - 3600 * SECOND, START + 10**9 * SECOND))
    with OpaServer([tmp_path / "rego"], binary=opa_binary) as server:
        http.put(f"{server.url}/v1/data/privtab_program/lake", json=dict(artifacts.program), timeout=5)
        http.put(f"{server.url}/v1/data/privtab_state/lake", json=document, timeout=5)
        for rule, expected in (("allow", {"result": False}), ("check", {}), ("decision", {})):
            response = http.post(
                f"{server.url}/v1/data/privtab/lake/{rule}", json={"input": REQUEST.to_json()}, timeout=5
            ).json()
            response.pop("decision_id", None)
            assert response == expected, rule
        with Client(server.url, system="lake") as client, pytest.raises((PolicyError, DecisionUnavailable)):
            client.check("ann", "load", "table:m/t")
