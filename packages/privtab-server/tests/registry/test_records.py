"""A record that cannot be read stands in nobody's way, is told of, and is mended."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from example_bundles import ExampleBundles

from privtab.bundle import archive_entries
from privtab.bundle.archive import packed_archive
from privtab.command._app import run
from privtab_server.errors import RegistryConflict, RegistryError
from privtab_server.registry import Registry, names
from privtab_server.registry.maintenance import all_records, check, sweep
from privtab_server.registry.nodes import Canary


def record(registry: Registry, at: str) -> str:
    return names.revision("shop", "policy", at)


def other(content: bytes, **more: Any) -> bytes:
    return json.dumps(json.loads(content) | more).encode()


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a list": lambda _: b"[]",
    "of others": lambda content: other(content, id="0" * 16),
    "with a way out": lambda content: other(content, system="../.."),
    "of another kind": lambda content: other(content, size="large"),
    "with a key twice": lambda content: content.rstrip()[:-1] + b', "id": "0000000000000000"}',
    "with half of a surrogate pair": lambda content: content.replace(b'"policy"', b'"\\ud800"'),
    "without one": lambda _: b"{}",
}


@pytest.fixture(params=HARMS)
def harmed(
    request: pytest.FixtureRequest, registry: Registry, packed: ExampleBundles
) -> tuple[Registry, list[str], str]:
    """Two policies are kept, the first one runs, and the record of the second one cannot be read."""
    ids = [registry.put(policy).id for policy in packed.policies]
    state = registry.put(packed.states[0]).id
    registry.release("dev", "shop", policy=ids[0], state=state)
    path = record(registry, ids[1])
    registry.store.replace(path, HARMS[request.param](registry.store.read(path)))
    return registry, ids, path


def test_intact_records_are_listed_and_the_others_reported(
    harmed: tuple[Registry, list[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    registry, ids, path = harmed
    assert run(["registry", "status", "-r", registry.url, "--stored", "all", "--format", "json"]) == 0
    output = capsys.readouterr()
    assert [listed["id"] for listed in json.loads(output.out) if listed["kind"] == "policy"] == [ids[0]]
    assert path in output.err
    assert "put its bundle again" in output.err
    with pytest.raises(RegistryError, match="put its bundle again"):
        registry.revision("shop", "policy", ids[1])


def test_a_check_tells_of_it_and_mends_it(harmed: tuple[Registry, list[str], str]) -> None:
    registry, ids, path = harmed
    assert [(problem.path, problem.repaired) for problem in check(registry).problems] == [(path, False)]
    assert [(problem.path, problem.repaired) for problem in check(registry, repair=True).problems] == [(path, True)]
    assert check(registry).problems == ()
    assert registry.revision("shop", "policy", ids[1]).id == ids[1]


def test_a_check_that_finds_no_bundle_says_so(harmed: tuple[Registry, list[str], str], packed: ExampleBundles) -> None:
    registry, _, path = harmed
    registry.store.remove(names.blob(hashlib.sha256(packed.policies[1]).hexdigest()))
    (problem,) = check(registry, repair=True).problems
    assert (problem.path, problem.repaired) == (path, False)
    assert "its bundle was not found" in problem.message


def test_a_sweep_goes_on_and_spares_bundles_without_a_record(
    harmed: tuple[Registry, list[str], str], packed: ExampleBundles, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, ids, path = harmed
    states = [registry.put(state).id for state in packed.states[1:]]
    swept = sweep(registry, keep=1, older_than=0, remove=True)
    assert {revision.id for revision in swept.revisions} == set(states)
    assert (swept.orphans, swept.unreadable_releases) == ((), (path,))
    assert check(registry, repair=True).problems[0].repaired, "its bundle is there still"
    assert [revision.id for revision in sweep(registry, keep=1, older_than=0, remove=True).revisions] == [ids[1]]
    assert run(["registry", "check", registry.url, "--keep", "10"]) == 0
    assert "cannot be read" not in capsys.readouterr().err


def test_putting_it_again_heals_it(harmed: tuple[Registry, list[str], str], packed: ExampleBundles) -> None:
    registry, ids, _ = harmed
    revision = registry.put(packed.policies[1])
    assert registry.revision("shop", "policy", ids[1]) == revision
    assert check(registry).problems == ()
    registry.release("dev", "shop", policy=ids[1])


def test_other_channels_are_not_blocked(harmed: tuple[Registry, list[str], str], packed: ExampleBundles) -> None:
    registry, ids, _ = harmed
    state = registry.put(packed.states[1]).id
    assert registry.release("dev", "shop", state=state).state == state
    assert registry.put(packed.policies[0]).id == ids[0]
    assert [revision.id for revision in registry.revisions("shop")] == [ids[0]]


def test_the_record_of_what_runs_is_mended_from_what_runs(registry: Registry, packed: ExampleBundles) -> None:
    """Whoever puts another content under its name is refused as ever."""
    running = registry.put(packed.policies[0])
    state = registry.put(packed.states[0]).id
    registry.release("dev", "shop", policy=running.id)
    path = record(registry, running.id)
    registry.store.replace(path, b"{")
    files = {path: file.read() for path, _, file in archive_entries(io.BytesIO(packed.policies[0]))}
    rego = next(name for name in files if name.endswith(".rego"))
    with pytest.raises(RegistryConflict, match="with different content"):
        registry.put(packed_archive({**files, rego: files[rego] + b"\nallow := true\n"}))
    assert registry.revision("shop", "policy", running.id).digest == running.digest
    registry.store.replace(path, b"{")
    assert registry.release("dev", "shop", state=state).policy == running.id
    assert registry.release("dev", "shop", canary=Canary(state=state)).policy == running.id


def test_foreign_files_are_reported_and_passed_over(registry: Registry, packed: ExampleBundles) -> None:
    revision = registry.put(packed.policies[0])
    registry.release("dev", "shop", policy=revision.id)
    strays = ["revisions/my notes/x.json", "channels/my notes/x", "channels/dev/old copy/x"]
    for path in strays:
        registry.store.create(path, b"")
    assert [listed.id for listed in all_records(registry)[0]] == [revision.id]
    assert [channel.channel for channel in registry.channels()] == ["dev"]
    found = {problem.path for problem in check(registry).problems}
    assert found == {path.rpartition("/")[0] for path in strays}
    assert sweep(registry).kept == 1
