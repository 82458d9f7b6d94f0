"""What fails in the middle leaves nothing half done, and nothing is lost or done twice."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from lake_policy import POLICY, asks, grant
from sqlalchemy import Engine, event, text

from privtab.base import AccessDenied, Change, Decision, PrivtabError, StateInvalid, parse_moment
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_server.errors import StoreError
from privtab_server.store.database import BEGINNING, HEAD, Database, address, create_tables
from privtab_server.store.excerpt import Excerpt
from privtab_server.store.journal import Head, Writer, read_head
from privtab_server.store.planning import ChangeRequest, plan
from privtab_server.store.store import Outcome, Store

NAME = "x" * 5_000
"""So that few changes fill a disk."""


@pytest.fixture
def lake(store: Store) -> Store:
    """A store with the lake `l`, which `root` owns, and schemas in it."""
    store.perform(asks("root", "create", "lake:l"))
    for schema in "ab":
        store.perform(asks("root", "create", f"schema:l/{schema}"))
    return store


def dump(url: str) -> list[str]:
    """Everything in the database, as SQL."""
    with closing(sqlite3.connect(url)) as connection:
        return list(connection.iterdump())


def change(store: Store) -> None:
    row = {"entity": "lake:l", "owner": "user:root"}
    store.change(
        asks("root", "grant", "lake:l"),
        remove={"owners": [row]},
        add={"owners": [{**row, "owner": "user:ben"}], "grants": [grant("user:eve", "SELECT", "lake:l")]},
    )


KINDS: dict[str, Callable[[Store], object]] = {
    "perform": lambda store: store.perform(asks("root", "create", "schema:l/new")),
    "change": change,
    "delete": lambda store: store.delete_entity(asks("root", "drop", "schema:l/a")),
    "delete all": lambda store: store.delete_all([asks("root", "drop", f"schema:l/{schema}") for schema in "ab"]),
    "together": lambda store: wait_together(store, schemas(store, "cde")),
}


def killed_at(url: str, program: Program, work: Callable[[Store], object], statement: int) -> bool:
    """Whether a process that changes a store was killed at its n-th statement that writes, or when it commits."""

    def change_store() -> None:
        store = Store.open(url, program)
        kill_at(statement, store.database.engine)
        work(store)

    return killed(change_store)


def killed(work: Callable[[], object]) -> bool:
    """Whether a process that does this was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def kill_at(statement: int, engine: Engine | type[Engine]) -> None:
    """Kill this process at its n-th statement that writes, or when it commits."""
    executed = 0

    def count(*arguments: object) -> None:
        nonlocal executed
        sql = str(arguments[2]) if len(arguments) > 1 else "COMMIT"
        executed += not sql.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN"))
        if executed == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine, "after_cursor_execute", count)
    event.listen(engine, "commit", count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_writer_killed_at_any_statement_changes_nothing(lake: Store, url: str, program: Program, kind: str) -> None:
    lake.database.engine.dispose()
    before = dump(url)
    statement = 1
    while killed_at(url, program, KINDS[kind], statement):
        assert dump(url) == before
        assert lake.verify() == []
        lake.database.engine.dispose()
        statement += 1
    assert statement > 4, "an entry, rows, the head and the commit"
    assert dump(url) != before
    assert lake.verify() == []


@pytest.mark.slow
def test_a_load_that_is_killed_loads_nothing(
    store: Store, url: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab_server.store.store.MOST_CHANGES", 5)
    store.database.engine.dispose()
    before = dump(url)
    rows = {"grants": [grant(f"user:u{number}", "SELECT", "lake:l") for number in range(20)]}
    statement = 1
    while killed_at(url, program, lambda store: store.load(rows, actor="setup"), statement):
        assert dump(url) == before
        statement += 1
    assert statement > 9, "four entries with their rows, the head and the commit"
    assert len(store.rows()["grants"]) == 20
    assert store.verify() == []


@pytest.mark.slow
def test_a_store_whose_creation_is_killed_is_created_again(url: str, program: Program) -> None:
    def create(statement: int) -> None:
        kill_at(statement, Engine)
        Store.create(url, program, administrators=["root"])

    def exists() -> bool:
        try:
            return bool(Store.open(url, program))
        except StoreError as error:
            message = str(error)
        assert "holds no store: `privtab store create` creates one" in message
        return False

    statement = 1
    while killed(partial(create, statement)) and not exists():
        statement += 1
    assert statement > 30, "the tables, an entry and its rows, the head and the commit"
    store = Store.open(url, program)
    assert store.rows()["service_admins"] == [{"user": "root"}]
    assert store.verify() == []


@pytest.mark.slow
def test_a_disk_that_takes_no_more_bytes_refuses_changes_until_there_is_room(
    lake: Store, url: str, program: Program
) -> None:
    first = lake.head().number
    lake.database.engine.dispose()

    def change_store() -> None:
        store = Store.open(url, program)
        store.perform(asks("root", "create", "schema:l/first"))
        size = Path(f"{url}-wal").stat().st_size
        # Python ignores the signal, so that the system refuses the write.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
        with pytest.raises(StoreError, match="disk"):
            fill(store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.perform(asks("root", "create", "schema:l/last"))

    assert not killed(change_store)
    done = lake.head().number - first - 2
    assert 0 < done < 1_000
    created = [f"schema:l/{NAME}{number}" for number in range(done)]
    assert [row["entity"] for row in lake.rows()["owners"]][3:] == ["schema:l/first", *created, "schema:l/last"]
    assert lake.verify() == []


def fill(store: Store) -> None:
    """Create schemas until the disk is full."""
    for number in range(1_000):
        store.perform(asks("root", "create", f"schema:l/{NAME}{number}"))


def test_a_full_disk_refuses_changes_and_leaves_the_store_as_it_was(lake: Store, url: str) -> None:
    def limit(pages: int) -> None:
        lake.database.engine.dispose()
        event.listen(
            lake.database.engine,
            "connect",
            lambda connection, _: connection.execute(f"pragma max_page_count = {pages}").close(),
        )

    before = lake.rows()
    limit(1)  # SQLite takes the pages that there are.
    with pytest.raises(StoreError, match="full"):
        fill(lake)
    done = lake.head().number
    assert lake.verify() == []
    limit(1_000_000)
    lake.perform(asks("root", "create", "schema:l/after"))
    assert lake.head().number == done + 1
    assert len(lake.rows()["owners"]) == len(before["owners"]) + done - 4 + 1


def test_the_journal_gives_the_same_database_byte_for_byte(
    lake: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("perform", "together", "change", "delete", "delete all"):
        KINDS[kind](lake)
    again = Database(address(str(tmp_path / "again.db")))
    with lake.database.reading() as connection:
        checked = read_head(connection).checked
    with again.writing() as connection:
        create_tables(connection)
        connection.execute(HEAD.insert(), [{"id": 1, "number": 0, "hash": BEGINNING, "system": lake.system}])
        writer = Writer(connection, Head(0, BEGINNING, lake.system))
        with lake.database.reading() as source:
            journal = source.execute(text("select * from journal order by number")).mappings().all()
        for entry, row in zip(lake.log(), journal, strict=True):
            monkeypatch.setattr("privtab_server.store.journal.time_ns", lambda at=entry.at: parse_moment(at))
            columns = ("actor", "request_id", "action", "resource", "request", "decision")
            writer.append(entry.changes, **{name: row[name] for name in columns})
        writer.finish(checked or "")
    assert dump(str(tmp_path / "again.db")) == dump(url)


def wait_together(store: Store, requests: list[Callable[[], Outcome]]) -> list[Outcome | PrivtabError | None]:
    """Let threads ask for changes while another one writes, so that all are written at once."""
    results: list[Outcome | PrivtabError | None] = [None] * len(requests)

    def ask(number: int) -> None:
        try:
            results[number] = requests[number]()
        except PrivtabError as error:
            results[number] = error

    threads = [Thread(target=ask, args=(number,)) for number in range(len(requests))]
    with Database(store.database.url).writing():
        # The first thread waits for the database, and the others for the first.
        for number, thread in enumerate(threads, 1):
            thread.start()
            while store._commits.waiting() < number:
                pass
    for thread in threads:
        thread.join()
    return results


def schemas(store: Store, names: str, user: str = "root") -> list[Callable[[], Outcome]]:
    return [lambda name=name: store.perform(asks(user, "create", f"schema:l/{name}")) for name in names]  # type: ignore[misc]


def test_changes_that_wait_are_committed_together_and_decided_in_order(lake: Store) -> None:
    commits: list[object] = []
    event.listen(lake.database.engine, "commit", commits.append)
    eve = {"entity": "lake:l", "owner": "user:eve"}
    requested = [
        *schemas(lake, "c"),
        *schemas(lake, "d", user="eve"),
        lambda: lake.change(asks("root", "grant", "lake:l"), add={"owners": [eve]}),
        *schemas(lake, "e", user="eve"),
    ]
    results = wait_together(lake, requested)
    assert [type(result) for result in results] == [Outcome, AccessDenied, Outcome, Outcome]
    assert [result.number for result in results if isinstance(result, Outcome)] == [5, 6, 7]
    assert len(commits) == 1
    assert lake.verify() == []


def test_a_change_that_the_database_refuses_does_not_hinder_those_beside_it(lake: Store) -> None:
    with lake.database.writing() as connection:
        connection.execute(
            text(
                "create trigger poison before insert on state_owners when new.entity = 'schema:l/d' "
                "begin select raise(abort, 'poisoned'); end"
            )
        )
    results = wait_together(lake, schemas(lake, "cde"))
    assert [type(result) for result in results] == [Outcome, StoreError, Outcome]
    assert "poisoned" in str(results[1])
    assert {row["entity"] for row in lake.rows()["owners"]} >= {"schema:l/c", "schema:l/e"}
    assert lake.verify() == []


def test_a_change_that_cannot_be_planned_does_not_hinder_those_beside_it(
    lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(program: Program, excerpt: Excerpt, requested: ChangeRequest) -> tuple[Decision, tuple[Change, ...]]:
        if requested.request.resource.id == "l/d":
            raise ZeroDivisionError
        return plan(program, excerpt, requested)

    monkeypatch.setattr("privtab_server.store.store.plan", planned)
    results = wait_together(lake, schemas(lake, "cde"))
    assert [type(result) for result in results] == [Outcome, StoreError, Outcome]
    assert "ZeroDivisionError" in str(results[1])
    assert lake.verify() == []


def test_all_rows_are_checked_once_under_another_policy(lake: Store, url: str, tmp_path: Path) -> None:
    lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "USE", "lake:l")]})
    path = tmp_path / "other.yaml"
    path.write_text(POLICY.replace("USE: {on: [lake, schema]}", "USE: {on: [schema]}"), encoding="utf-8")
    stricter = Store.open(url, load_program(path))
    for work in (stricter.perform, stricter.propose):
        with pytest.raises(StateInvalid, match="cannot be granted on a `lake`"):
            work(asks("root", "create", "schema:l/c"))
    path.write_text(
        POLICY.replace("drop: {requires: owner (table)", "drop: {requires: owner (schema)"), encoding="utf-8"
    )
    other = Store.open(url, load_program(path))
    other.perform(asks("root", "create", "schema:l/c"))
    with other.database.reading() as connection:
        assert read_head(connection).checked == other._policy != lake._policy
    lake.perform(asks("root", "create", "schema:l/d"))
    assert lake.verify() == []
