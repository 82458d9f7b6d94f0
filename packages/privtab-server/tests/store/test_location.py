"""Clients that decide in process on the state of a store."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import requests
from authzen_server import start
from lake_policy import POLICY, asks, grant
from sidecars import until

from privtab import Embedded, connect
from privtab.base import DecisionUnavailable, FileError, UsageError
from privtab.bundle import state_bundle
from privtab.command._app import run
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import from_tables, validate
from privtab_server.store.store import Outcome, Store

TABLE = "table:l/s/t"


class Clock:
    """The clocks of clients, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr("privtab.client._bundled.elapsed", lambda: self.now)
        monkeypatch.setattr("privtab.client._bundled.time.monotonic", lambda: self.now)


@pytest.fixture
def lake(store: Store) -> Store:
    for resource in ("lake:l", "schema:l/s", TABLE):
        store.perform(asks("root", "create", resource))
    return store


@pytest.fixture
def policy(program: Program, tmp_path: Path) -> Path:
    path = tmp_path / "policy.tar.gz"
    path.write_bytes(policy_artifacts(program).bundle())
    return path


def give(store: Store, user: str) -> Outcome:
    return store.change(asks("root", "grant", TABLE), add={"grants": [grant(f"user:{user}", "SELECT", TABLE)]})


def test_a_store_is_decided_as_its_packed_state(lake: Store, url: str, program: Program, policy: Path) -> None:
    give(lake, "ann")
    packed = policy.with_name("state.tar.gz")
    state, _ = validate(program, from_tables(lake.rows(), "the store"))
    packed.write_bytes(state_bundle(program, state))
    with connect(policy, state=f"store:{url}") as client, Embedded(policy, packed) as other:
        assert client.check("ann", "read", TABLE)
        assert not client.check("ben", "read", TABLE)
        assert client.decide("ann", "read", TABLE) == other.decide("ann", "read", TABLE)
        assert client.revision() == other.revision()


def test_changes_are_followed_through_the_journal(
    lake: Store, url: str, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = Embedded(f"store:{url}", policy, refresh=1)
    # From here on, only the journal is read.
    monkeypatch.setattr("privtab_server.store.lookups.Rows.read", None)
    give(lake, "ann")
    assert not client.check("ann", "read", TABLE)
    clock.now += 1
    assert client.check("ann", "read", TABLE)
    lake.delete_entity(asks("root", "drop", TABLE))
    clock.now += 1
    assert not client.check("ann", "read", TABLE)
    revision = client.revision()
    clock.now += 1
    assert client.revision() == revision
    assert not client.refresh()


def test_beyond_the_bound_nothing_is_decided(
    lake: Store, url: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    client = Embedded(policy, state=f"store:{url}", refresh=1, max_staleness=5)
    lake.database.engine.dispose()
    Path(url).rename(tmp_path / "elsewhere")
    Path(url).mkdir()
    client._bundled.locations[-1]._journal.database.engine.dispose()  # type: ignore[attr-defined]
    clock.now += 5
    assert client.check("root", "read", TABLE)
    assert "cannot be used" in str(client.problem)
    clock.now += 0.1
    with pytest.raises(DecisionUnavailable, match="too old"):
        client.check("root", "read", TABLE)
    with pytest.raises(DecisionUnavailable, match="cannot be used"):
        client.refresh()
    Path(url).rmdir()
    (tmp_path / "elsewhere").rename(url)
    clock.now += 1
    assert client.check("root", "read", TABLE)


def test_a_question_is_answered_no_older_than_a_change(lake: Store, url: str, policy: Path) -> None:
    client = Embedded(policy, state=f"store:{url}")
    written = give(lake, "ann")
    assert not client.check("ann", "read", TABLE)
    assert client.refresh(at_least=written.number)
    assert client.check("ann", "read", TABLE)
    # What is known is not read again.
    lake.database.engine.dispose()
    client._bundled.locations[-1]._journal = None  # type: ignore[attr-defined]
    assert not client.refresh(at_least=written.number)


def test_a_change_that_does_not_come_is_an_error(
    lake: Store, url: str, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab_server.store.location.LONGEST_WAIT", 0)
    client = Embedded(policy, state=f"store:{url}")
    with pytest.raises(DecisionUnavailable, match="is at change 4, and change 5 is requested"):
        client.refresh(at_least=lake.head().number + 1)


def test_an_older_copy_is_refused(lake: Store, url: str, policy: Path, tmp_path: Path) -> None:
    lake.database.engine.dispose()
    shutil.copy(url, tmp_path / "copy")
    give(lake, "ann")
    client = Embedded(policy, state=f"store:{url}")
    lake.database.engine.dispose()
    client._bundled.locations[-1]._journal.database.engine.dispose()  # type: ignore[attr-defined]
    for ending in ("-wal", "-shm"):
        Path(f"{url}{ending}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", url)
    with pytest.raises(DecisionUnavailable, match="replaced by an older copy"):
        client.refresh()
    # Another change with the same number is not what was read.
    assert give(lake, "ben").number == 5
    with pytest.raises(DecisionUnavailable, match="replaced by an older copy"):
        client.refresh()
    assert client.check("ann", "read", TABLE)


def test_rows_that_are_wrong_under_the_policy_are_not_used(lake: Store, url: str, policy: Path, tmp_path: Path) -> None:
    lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:ann", "USE", "lake:l")]})
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("USE: {on: [lake, schema]}", "USE: {on: [schema]}"), encoding="utf-8")
    policy.write_bytes(policy_artifacts(load_program(other)).bundle())
    with pytest.raises(DecisionUnavailable, match="cannot be granted on a `lake`"):
        Embedded(policy, state=f"store:{url}")


def test_a_copy_in_another_process_opens_the_store_itself(lake: Store, url: str, policy: Path) -> None:
    client = pickle.loads(pickle.dumps(Embedded(policy, state=f"store:{url}")))  # noqa: S301  (its own)
    assert not client.check("ann", "read", TABLE)
    give(lake, "ann")
    assert client.refresh()
    assert client.check("ann", "read", TABLE)
    number = give(lake, "ben").number
    child = os.fork()
    if child == 0:
        client.refresh(at_least=number)
        os._exit(0 if client.check("ben", "read", TABLE) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_locations_that_cannot_be_used(lake: Store, url: str, policy: Path, tmp_path: Path, program: Program) -> None:
    state, _ = validate(program, from_tables(lake.rows(), "the store"))
    packed = tmp_path / "state.tar.gz"
    packed.write_bytes(state_bundle(program, state))
    with pytest.raises(UsageError, match="no policy of it"):
        Embedded(packed, state=f"store:{url}")
    with pytest.raises(FileError, match="no such store"):
        Embedded(policy, state=f"store:{tmp_path}/missing.db")
    with pytest.raises(UsageError, match="both hold `lake`"):
        Embedded(policy, packed, state=f"store:{url}")
    with pytest.raises(UsageError, match="no numbered changes"):
        Embedded(policy, packed).refresh(at_least=1)
    with pytest.raises(UsageError, match="is not signed"):
        Embedded(policy, state=f"store:{url}", verification_key="-----BEGIN PUBLIC KEY-----")


@pytest.mark.slow
def test_a_server_of_decisions_follows_a_store(
    lake: Store, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tmp_path / "tables.yaml"
    tables.write_text(POLICY, encoding="utf-8")
    server = start(["-p", tables, "-s", f"store:{url}", "--refresh", "0.1", "--max-staleness", "2"], tmp_path)

    def evaluated() -> requests.Response:
        request = {
            "subject": {"type": "user", "id": "eve"},
            "action": {"name": "create"},
            "resource": {"type": "schema", "id": "l/s"},
        }
        return server.session.post(f"{server.url}/access/v1/evaluation", json=request, timeout=5)

    try:
        assert evaluated().json()["decision"] is False
        lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "CREATE", "lake:l")]})
        until(lambda: evaluated().json()["decision"])
        with closing(sqlite3.connect(url)) as database:
            database.execute("alter table head rename to gone")
            until(lambda: evaluated().status_code == 503)
            database.execute("alter table gone rename to head")
        until(lambda: evaluated().status_code == 200 and evaluated().json()["decision"])
    finally:
        server.stop()
    assert run(["serve", "-p", str(tables), "-s", f"store:{url}@yesterday"]) == 2
    assert "`yesterday` is not a moment" in capsys.readouterr().err
