"""What a real OPA makes of deltas: base and delta give the document of the full bundle, whatever the names."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundle_service
import pytest
import requests
from bundle_service import BundleService, changed, unusual_state

from privtab import pipeline
from privtab.bundle import state_bundle
from privtab.bundle.delta import contents, delta_for, verify_delta
from privtab.bundle.pack import shard_bundles
from privtab.ir.nodes import Program
from privtab.opa.server import OpaServer
from privtab.state.shards import PEOPLE, shard_name


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    return pipeline.load_program(path)


def document(url: str) -> dict[str, Any]:
    found = requests.get(f"{url}/v1/data/privtab_state/lake", timeout=10).json().get("result", {})
    assert isinstance(found, dict)
    return found


def revision(url: str) -> Any:
    return document(url).get("revision")


def until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it never came about"
        time.sleep(0.01)


@pytest.fixture
def service() -> Any:
    with BundleService() as running:
        yield running


def start(service: BundleService, names: list[str], opa_binary: Path, folder: Path, **bundle: Any) -> OpaServer:
    config = folder / "opa.json"
    config.write_text(service.config(names, **bundle))
    return OpaServer(binary=opa_binary, config=config)


@pytest.mark.slow
def test_deltas_in_a_row_lead_where_the_full_bundles_are(
    lake: Program, service: BundleService, opa_binary: Path, tmp_path: Path
) -> None:
    states = [unusual_state(1, roots=30)]
    for seed in range(60):
        states.append(changed(states[-1], seed, rows=5 if seed % 10 == 0 else 2))
    before = state_bundle(lake, states[0])
    service.put("state", '"0"', before)
    with start(service, ["state"], opa_binary, tmp_path) as opa:
        deltas = 0
        for number, state in enumerate(states[1:], 1):
            full = state_bundle(lake, state)
            delta = delta_for(before, full)
            if delta is not None:
                verify_delta(before, delta, full)
                deltas += 1
            service.put("state", f'"{number}"', full, delta)
            expected = contents(full).data["privtab_state"]["lake"]
            until(lambda stamp=expected["revision"]: revision(opa.url) == stamp)  # type: ignore[misc]
            assert document(opa.url) == expected, number
            before = full
    assert deltas > 40
    assert sum(kind == "delta" for _, kind, _ in service.served) == deltas


@pytest.mark.slow
def test_people_and_shards_change_by_deltas_of_their_own(
    lake: Program, service: BundleService, opa_binary: Path, tmp_path: Path
) -> None:
    first = unusual_state(7, roots=30)
    second = changed(first, 8)
    old, new = shard_bundles(lake, first), shard_bundles(lake, second)
    names = {key: f"part{number}" for number, key in enumerate(sorted({*old, *new}))}
    for key, bundle in old.items():
        service.put(names[key], '"old"', bundle)
    with start(service, [names[key] for key in old], opa_binary, tmp_path) as opa:
        assert document(opa.url) == whole(old)
        for key in old.keys() & new.keys():
            service.put(names[key], '"new"', new[key], delta_for(old[key], new[key]))
        expected = whole({**old, **new})
        for key in new.keys() - old.keys():
            expected["at"].pop(shard_name(key))
        until(lambda: document(opa.url) == expected)
    assert any(kind == "delta" for _, kind, _ in service.served)
    odd = [key for key in old if "%" in key or "~" in key or "!" in key]
    assert len(odd) > 5


def whole(bundles_: dict[str, bytes]) -> dict[str, Any]:
    """The document that an OPA has which loaded all of these bundles."""
    found: dict[str, Any] = {"at": {}}
    for bundle in bundles_.values():
        data = contents(bundle).data["privtab_state"]["lake"]
        found["at"] |= data.get("at", {})
        found |= {key: value for key, value in data.items() if key != "at"}
    return found


@pytest.mark.slow
def test_a_delta_that_does_not_fit_leaves_the_last_good_bundle(
    lake: Program, service: BundleService, opa_binary: Path, tmp_path: Path
) -> None:
    first = unusual_state(3, roots=5)
    second = changed(first, 4, rows=8)
    third = changed(second, 5)
    base, other, full = (state_bundle(lake, state) for state in (first, second, third))
    wrong = delta_for(other, full)
    assert wrong is not None
    service.put("state", '"1"', base)
    with start(service, ["state"], opa_binary, tmp_path) as opa:
        had = document(opa.url)
        service.put("state", '"2"', full, wrong)
        until(lambda: "errors" in status(opa.url) or "message" in status(opa.url))
        assert document(opa.url) == had
        assert service.served[-1][1] == "delta"
        # Its ETag is still that of the base: the service sees who did not get on, and sends the snapshot.
        service.put("state", '"3"', full)
        until(lambda: revision(opa.url) == contents(full).data["privtab_state"]["lake"]["revision"])


def status(url: str) -> dict[str, Any]:
    found = requests.get(f"{url}/v1/status", timeout=10).json()["result"]["bundles"]["state"]
    assert isinstance(found, dict)
    return found


def test_parts_are_named_as_their_bundles_say(lake: Program) -> None:
    state = unusual_state(5, roots=30)
    for key, bundle in shard_bundles(lake, state).items():
        found = contents(bundle)
        assert found.manifest["metadata"]["shard"] == key
        (root, *more) = found.roots
        assert bool(more) == (key == PEOPLE)
        assert not set("%~") & set(root)
