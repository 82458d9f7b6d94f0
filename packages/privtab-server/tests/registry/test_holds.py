"""`gc` and writers at the same time: what is switched to, or put, is there afterwards, whoever was first."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from buckets import bucket
from example_bundles import ExampleBundles

from privtab.command._app import run
from privtab_server.errors import RegistryConflict, RegistryError
from privtab_server.registry import Registry, names, records
from privtab_server.registry.maintenance import check, sweep
from privtab_server.registry.nodes import encoded


@pytest.fixture
def two_policies(any_registry: Registry, packed: ExampleBundles) -> tuple[Registry, list[str]]:
    """The first policy runs, the second one is kept and nobody needs it."""
    ids = [any_registry.put(policy).id for policy in packed.policies]
    any_registry.release("dev", "shop", policy=ids[0])
    return any_registry, ids


@pytest.fixture
def local(registry: Registry, packed: ExampleBundles) -> tuple[Registry, list[str]]:
    """The same in a folder."""
    ids = [registry.put(policy).id for policy in packed.policies]
    registry.release("dev", "shop", policy=ids[0])
    return registry, ids


def interrupted(
    monkeypatch: pytest.MonkeyPatch, store: Any, name: str, when: Callable[[str], bool], meanwhile: Callable[[], object]
) -> list[object]:
    """Do something else, once, just before a store does something; what came of it."""
    inner = getattr(store, name)
    outcomes: list[object] = []

    def call(path: str, *more: bytes) -> None:
        if when(path) and not outcomes:
            outcomes.append(None)
            try:
                outcomes[0] = meanwhile()
            except (RegistryConflict, RegistryError) as error:
                outcomes[0] = error
        inner(path, *more)

    monkeypatch.setattr(store, name, call)
    return outcomes


def whole(registry: Registry) -> None:
    """Every channel can be served, and nobody left anything behind."""
    assert check(registry).problems == ()
    assert registry.store.names(names.HOLDS) == []


@pytest.mark.slow
def test_garbage_collection_spares_bundles_of_a_release_in_progress(
    two_policies: tuple[Registry, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, ids = two_policies
    outcomes = interrupted(
        monkeypatch,
        registry.store,
        "create",
        lambda path: path.startswith("channels/"),
        lambda: sweep(registry, keep=1, older_than=0, remove=True),
    )
    registry.release("dev", "shop", policy=ids[1])
    (swept,) = outcomes
    assert [revision.id for revision in getattr(swept, "revisions")] == []  # noqa: B009  (nobody knows its type)
    assert registry.channel("dev", "shop").policy == ids[1]
    whole(registry)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["revisions/", "blobs/"])
def test_a_release_of_bundles_being_removed_is_refused(
    two_policies: tuple[Registry, list[str]], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    registry, ids = two_policies
    monkeypatch.setattr(records, "PATIENCE", 0.2)
    outcomes = interrupted(
        monkeypatch,
        registry.store,
        "remove",
        lambda path: path.startswith(step),
        lambda: registry.release("dev", "shop", policy=ids[1]),
    )
    swept = sweep(registry, keep=1, older_than=0, remove=True)
    assert [revision.id for revision in swept.revisions] == [ids[1]]
    assert isinstance(outcomes[0], RegistryConflict if step == "revisions/" else RegistryError)
    assert registry.channel("dev", "shop").policy == ids[0]
    whole(registry)


@pytest.mark.slow
def test_a_bundle_stored_during_a_sweep_exists_afterwards(
    two_policies: tuple[Registry, list[str]], packed: ExampleBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its bundle lay there without a record, which is the moment before its record comes."""
    registry, ids = two_policies
    revision = registry.revision("shop", "policy", ids[1])
    registry.store.remove(names.revision("shop", "policy", ids[1]))
    outcomes = interrupted(
        monkeypatch,
        registry.store,
        "remove",
        lambda path: path == names.blob(revision.digest),
        lambda: threading.Thread(target=put_and_switch, args=(registry, packed.policies[1])).start(),
    )
    sweep(registry, keep=1, older_than=0, remove=True)
    assert outcomes == [None]
    ends = time.monotonic() + 30
    while registry.channel("dev", "shop").policy != ids[1] or registry.store.names(names.HOLDS):
        assert time.monotonic() < ends
        time.sleep(0.02)
    whole(registry)


def put_and_switch(registry: Registry, bundle: bytes) -> None:
    with ExitStack() as hold:
        registry.release("dev", "shop", policy=registry.put(bundle, hold=hold).id)


def test_a_stored_bundle_stays_until_its_hold_is_closed(
    local: tuple[Registry, list[str]], packed: ExampleBundles
) -> None:
    """As `deploy` does with a revision that came long ago: between put and switch lie gates."""
    registry, ids = local
    with ExitStack() as hold:
        registry.put(packed.policies[1], hold=hold)
        assert sweep(registry, keep=1, older_than=0, remove=True).revisions == ()
    assert [revision.id for revision in sweep(registry, keep=1, older_than=0, remove=True).revisions] == [ids[1]]
    whole(registry)


def note(registry: Registry, purpose: str, digests: list[str], age: timedelta) -> str:
    path = f"{names.HOLDS}/{purpose}-{uuid.uuid4().hex}.json"
    when = (datetime.now(UTC) - age).isoformat(timespec="seconds")
    registry.store.create(path, encoded({"digests": digests, "when": when}))
    return path


def test_a_hold_of_a_dead_process_expires(local: tuple[Registry, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    registry, ids = local
    monkeypatch.setattr(records, "PATIENCE", 0.0)
    digest = registry.revision("shop", "policy", ids[1]).digest
    young = note(registry, "remove", [digest], timedelta(minutes=50))
    with pytest.raises(RegistryConflict, match="is removing one of these bundles"):
        registry.release("dev", "shop", policy=ids[1])
    registry.store.remove(young)
    note(registry, "remove", [digest], timedelta(minutes=70))
    registry.release("dev", "shop", policy=ids[1])
    registry.release("dev", "shop", policy=ids[0])
    old = note(registry, "keep", [digest], timedelta(minutes=70))
    assert old in sweep(registry).abandoned_files
    swept = sweep(registry, keep=1, older_than=0, remove=True)
    assert [revision.id for revision in swept.revisions] == [ids[1]]
    whole(registry)


def test_a_writer_that_slept_too_long_does_not_rely_on_its_hold(
    local: tuple[Registry, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, ids = local
    monkeypatch.setattr(records, "LONGEST", -1.0)
    with pytest.raises(RegistryConflict, match="took so long"):
        registry.release("dev", "shop", policy=ids[1])
    assert registry.channel("dev", "shop").policy == ids[0]
    whole(registry)


def test_a_note_that_cannot_be_read_stops_a_sweep_and_is_mended(
    registry: Registry, packed: ExampleBundles, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [registry.put(policy).id for policy in packed.policies]
    registry.store.create(f"{names.HOLDS}/keep-x.json", b"{")
    registry.release("dev", "shop", policy=ids[0])
    with pytest.raises(RegistryError, match=r"keep-x\.json cannot be read: `privtab registry check --repair`"):
        sweep(registry, keep=1, older_than=0, remove=True)
    assert registry.read(registry.revision("shop", "policy", ids[1]))
    assert run(["registry", "check", registry.url]) == 1
    assert run(["registry", "check", registry.url, "--repair"]) == 0
    capsys.readouterr()
    sweep(registry, keep=1, older_than=0, remove=True)
    whole(registry)


SWITCHER = """\
import json, sys
from contextlib import ExitStack
from pathlib import Path
from privtab_server.errors import RegistryConflict, RegistryError
from privtab_server.registry import Registry, names, records

url, options, channel, paths, rounds = json.loads(sys.argv[1])
registry = Registry.open(url, **options)
bundles = [Path(path).read_bytes() for path in paths]
registry.settings()
print("ready", flush=True)
sys.stdin.readline()
done, refused = 0, 0
for at in range(rounds):
    try:
        if at % 3:
            identity = registry.put(bundles[at % 2]).id
            registry.release(channel, "shop", policy=identity)
        else:
            with ExitStack() as hold:
                identity = registry.put(bundles[at % 2], hold=hold).id
                registry.release(channel, "shop", policy=identity)
        done += 1
    except (RegistryConflict, RegistryError) as error:
        assert at % 3 or isinstance(error, RegistryConflict), error
        refused += 1
    for digest in registry.channel(channel, "shop").digests.values():
        registry.store.size(names.blob(digest))
print(json.dumps([done, refused]))
"""
SWEEPER = """\
import json, sys
from privtab_server.registry import Registry
from privtab_server.registry.maintenance import sweep

url, options = json.loads(sys.argv[1])
registry = Registry.open(url, **options)
print("ready", flush=True)
removed = 0
while not (registry.store.names("ended")):
    removed += len(sweep(registry, keep=1, older_than=0, remove=True).revisions)
print(json.dumps(removed))
"""


def race(url: str, options: dict[str, Any], packed: ExampleBundles, folder: Path, rounds: int) -> None:
    registry = Registry.open(url, **options)
    paths = []
    for at, policy in enumerate(packed.policies):
        registry.put(policy)
        paths.append(str(folder / f"policy-{at}.tar.gz"))
        Path(paths[-1]).write_bytes(policy)

    def started(text: str, *arguments: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", text, json.dumps([url, options, *arguments])]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    sweeper = started(SWEEPER)
    switchers = [started(SWITCHER, channel, paths, rounds) for channel in ("dev", "prod")]
    for process in switchers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=240)[0]) for process in switchers]
    assert [process.returncode for process in switchers] == [0, 0]
    registry.store.create("ended/now", b"")
    removed = json.loads(sweeper.communicate(timeout=60)[0])
    registry.store.remove("ended/now")
    assert removed > 0, "nothing was raced"
    assert all(done > 0 for done, _ in results)
    whole(registry)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    return bundles


@pytest.mark.slow
def test_releases_beside_garbage_collection_in_a_folder(tmp_path: Path, folder: Path, packed: ExampleBundles) -> None:
    race(str(tmp_path / "registry"), {}, packed, folder, rounds=60)


@pytest.mark.long
def test_releases_beside_garbage_collection_in_a_bucket(s3: str, folder: Path, packed: ExampleBundles) -> None:
    place = uuid.uuid4().hex
    race(f"s3://{place}/registry", bucket(s3, place), packed, folder, rounds=3)
