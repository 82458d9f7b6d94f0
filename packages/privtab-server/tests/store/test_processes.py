"""Several writers at once, and writers that are killed: nothing half done, nothing lost, nothing twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from lake_policy import POLICY, asks, grant
from postgresql_server import limit_files, postgresql, stopped
from sidecars import until
from sqlalchemy import create_engine, make_url, text

from privtab.base import FileError
from privtab.ir import Program
from privtab_server.errors import StoreConflict, StoreError
from privtab_server.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]

WRITERS, CHANGES = 8, 4
SCRIPT = """\
import os, sys
sys.path[:0] = [{support!r}]
from pathlib import Path
from lake_policy import asks, grant
from privtab_server.errors import StoreConflict
from privtab.pipeline import load_program
from privtab_server.store.store import Store
url, policy, folder, together, *names = sys.argv[1:]
program = load_program(Path(policy))
writers = {{}}
for me in names:
    writers[me] = os.fork()
    if writers[me] == 0:
        sys.stdout = Path(folder, me).open("w", buffering=1)
        store = Store.open(url, program)
{body}
        os._exit(0)
    if together == "no":
        print(me, os.waitpid(writers[me], 0)[1])
if together == "yes":
    for me, writer in writers.items():
        print(me, os.waitpid(writer, 0)[1])
"""
"""A process that loads the policy once, and forks one process for each writer."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "grants.db")
    server: str = request.getfixturevalue("server")
    name = f"grants{time.time_ns()}"
    with create_engine(server, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(f"create database {name}"))
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture
def lake(url: str, program: Program) -> Store:
    store = Store.create(url, program, administrators=["root"])
    store.perform(asks("root", "create", "lake:l"))
    return store


def write(url: str, policy: Path, names: list[str], body: str, *, together: bool = True) -> dict[str, tuple[int, str]]:
    """Run a writer for each name, and return the status with which each ended, and its output."""
    support = str(ROOT / "tests" / "support")
    script = SCRIPT.format(support=support, body=textwrap.indent(textwrap.dedent(body), " " * 8))
    folder = policy.parent / f"out{time.time_ns()}"
    folder.mkdir()
    command = [sys.executable, "-c", script, url, str(policy), str(folder), "yes" if together else "no", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    statuses = dict(line.split() for line in done.stdout.splitlines())
    assert list(statuses) == names, done.stderr
    return {name: (int(statuses[name]), (folder / name).read_text(encoding="utf-8")) for name in names}


def outputs(found: dict[str, tuple[int, str]]) -> list[str]:
    assert {status for status, _ in found.values()} == {0}, found
    return [word for _, out in found.values() for word in out.split()]


def test_eight_writers_lose_nothing_and_do_nothing_twice(lake: Store, url: str, policy: Path) -> None:
    body = f"""
        for number in range({CHANGES}):
            store.perform(asks("root", "create", f"schema:l/{{me}}-{{number}}"), request_id=f"{{me}}-{{number}}")
            # All of them want this one, and one gets it.
            done = store.perform(asks("root", "create", f"schema:l/same-{{number}}"), request_id=f"same-{{number}}")
            print(done.repeated)
    """
    printed = outputs(write(url, policy, [f"w{number}" for number in range(WRITERS)], body))
    assert printed.count("False") == CHANGES
    assert printed.count("True") == CHANGES * (WRITERS - 1)
    assert lake.verify() == []
    assert lake.head().number == 2 + CHANGES * (WRITERS + 1)
    owned = {row["entity"] for row in lake.rows()["owners"]}
    assert owned == {"lake:l"} | {
        f"schema:l/{who}-{number}" for number in range(CHANGES) for who in ("same", *(f"w{w}" for w in range(WRITERS)))
    }
    assert lake.rows() == lake.rows(number=lake.head().number)


def test_of_writers_that_expect_the_same_moment_one_wins(lake: Store, url: str, policy: Path) -> None:
    body = f"""
        try:
            store.change(asks("root", "grant", "lake:l"), add={{"owners": [{{"entity": "lake:l", "owner": f"user:{{me}}"}}]}}, expect={lake.head().number})
            print("won")
        except StoreConflict:
            print("lost")
    """
    printed = outputs(write(url, policy, [f"w{n}" for n in range(4)], body))
    assert sorted(printed) == ["lost", "lost", "lost", "won"]
    assert len(lake.rows()["owners"]) == 2
    assert lake.verify() == []


KILLED = """
    from sqlalchemy import event
    executed = 0
    @event.listens_for(store.database.engine, "after_cursor_execute")
    def count(connection, cursor, statement, *others):
        global executed
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN")):
            executed += 1
            if str(executed) == me:
                os.kill(os.getpid(), 9)

    {work}
    print(executed)
"""
WORK = {
    "perform": 'store.perform(asks("root", "create", "schema:l/new"), request_id="once")',
    "change": (
        'store.change(asks("root", "grant", "lake:l"), request_id="once", '
        'remove={"owners": [{"entity": "lake:l", "owner": "user:root"}]}, '
        'add={"owners": [{"entity": "lake:l", "owner": "user:ben"}], '
        '"grants": [grant("user:eve", "SELECT", "lake:l")]})'
    ),
    "delete": 'store.delete_entity(asks("root", "drop", "schema:l/a"), request_id="once")',
    "delete all": 'store.delete_all([asks("root", "drop", f"schema:l/{name}") for name in "ab"], request_id="once")',
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long if kind in ("perform", "delete") else ()) for kind in sorted(WORK)],
)
def test_a_writer_killed_at_any_statement_leaves_nothing_half_done(
    lake: Store, url: str, policy: Path, kind: str
) -> None:
    for name in "ab":
        lake.perform(asks("root", "create", f"schema:l/{name}"))
    before, head = lake.rows(), lake.head()
    body = KILLED.replace("{work}", WORK[kind])
    # At least the entry, the rows and the head: three statements; and for a change, those of two tables and of what is removed.
    statements = "12345" if kind == "change" else "123"
    for status, out in write(url, policy, list(statements), body, together=False).values():
        assert (status, out) == (signal.SIGKILL, "")
    assert (lake.rows(), lake.head()) == (before, head)
    assert lake.verify() == []
    first, second = outputs(write(url, policy, ["first", "second"], body, together=False))
    assert int(first) >= len(statements)
    assert second == "0", "a second request with the same id does nothing"
    assert lake.head().number == head.number + (2 if kind == "delete all" else 1)
    assert lake.rows() != before
    assert lake.verify() == []


def test_names_are_the_same_in_every_database(lake: Store) -> None:
    for number, name in enumerate(("o'neil", 'say "x"; --', "100%25", "名前 é\U0001f512", "\\", "x" * 10_000)):
        schema = f"schema:l/{name}"
        lake.perform(asks("root", "create", schema), request_id=f"r{number}")
        lake.change(
            asks("root", "grant", schema), add={"grants": [grant(f"user:{name.replace('%', '')}", "SELECT", schema)]}
        )
        assert lake.rows()["owners"][-1] == {"entity": schema, "owner": "user:root"}
        assert lake.rows()["grants"][-1] == grant(f"user:{name.replace('%', '')}", "SELECT", schema)
    assert lake.verify() == []


def test_a_database_that_goes_is_an_error_and_comes_back(lake: Store, url: str, tmp_path: Path) -> None:
    if "://" in url:
        with stopped(url), pytest.raises(StoreError):
            lake.perform(asks("root", "create", "schema:l/s"))
    else:
        lake.database.engine.dispose()
        Path(url).rename(tmp_path / "elsewhere")
        with pytest.raises((StoreError, FileError, StoreConflict)):
            lake.perform(asks("root", "create", "schema:l/s"))
        (tmp_path / "elsewhere").replace(url)
        lake.database.engine.dispose()
    lake.perform(asks("root", "create", "schema:l/s"))
    assert lake.verify() == []


def test_connections_that_the_database_ends_are_opened_again(lake: Store, url: str) -> None:
    if "://" not in url:
        pytest.skip("files have no connections that end")
    with create_engine(make_url(url).set(database="postgres")).connect() as connection:
        connection.execute(text("select pg_terminate_backend(pid) from pg_stat_activity where datname like 'grants%'"))
    lake.perform(asks("root", "create", "schema:l/s"))
    assert lake.verify() == []


def test_a_database_whose_disk_is_full_does_nothing_by_halves(lake: Store, url: str) -> None:
    """PostgreSQL ends all its sessions when it cannot write its log, and recovers; for SQLite see test_faults."""
    if "://" not in url:
        pytest.skip("see test_faults")
    lake.perform(asks("root", "create", "schema:l/before"))
    with create_engine(make_url(url).set(database="postgres")).connect() as connection:
        question = text("select pid from pg_stat_activity where datname = :name")
        sessions = connection.execute(question, {"name": make_url(url).database}).scalars().all()
    assert sessions
    limit_files(sessions, 1)
    with pytest.raises(StoreError):
        lake.perform(asks("root", "create", "schema:l/lost"))
    limit_files(sessions, None)
    until(lambda: recovered(lake))
    assert [row["entity"] for row in lake.rows()["owners"]] == ["lake:l", "schema:l/before"]
    lake.perform(asks("root", "create", "schema:l/after"))
    assert lake.verify() == []


def recovered(store: Store) -> bool:
    try:
        return bool(store.head())
    except StoreError:
        return False
