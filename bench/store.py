"""Changes of a store a second, with eight writers, beside bare INSERTs of the same rows; and loading a million grants."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from measure import Report, Spread, Table, Target, WrongAnswerError
from sqlalchemy import make_url

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
WRITERS, CHANGES, THERE = 8, 100, 200_000
"""Threads, changes of each, and the grants that are in the store before."""
LOADED = 1_000_000


def report(_: Sequence[str], repetitions: int) -> Report:
    """Changes and bare rows a second in SQLite and in PostgreSQL, and a load of a million grants."""
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    for name, server in (("SQLite", _file), ("PostgreSQL", _postgresql)):
        with server() as url:
            changes, inserts = writes(url, repetitions)
        rows.append((name, inserts.text(), changes.text(), changes.over(inserts).text(2)))
        what = f"changes a second, {WRITERS} writers, {name}, over INSERTs of the same rows"
        targets.append(Target(what=what, spread=changes.over(inserts), wanted=0.3, sense="at least"))
    spent, spent_cpu, memory = load(LOADED)
    targets.append(
        Target(what="load 1 M grants", spread=Spread(values=(spent,)), wanted=60, sense="at most", unit=" s")
    )
    columns = ("database", "INSERTs of the same rows/s", "changes/s", "ratio")
    loaded = (f"{LOADED:,}", f"{spent:.0f} s", f"{spent_cpu:.0f} s", f"{memory:,.0f} MB")
    return Report(
        part="store",
        tables=(
            Table(title=f"{WRITERS} writers on a store of {THERE:,} grants", columns=columns, rows=tuple(rows)),
            Table(title="Load into SQLite", columns=("grants", "time", "processor", "memory"), rows=(loaded,)),
        ),
        targets=tuple(targets),
    )


def writes(url: str, repetitions: int) -> tuple[Spread, Spread]:
    """Changes a second, each a decision, a row and an entry of the journal; and the same two rows a second, inserted by the bare driver.

    The bare rows go into tables of the same shape, with the same indexes, in a database of their own: a transaction for each change.
    """
    from lake_policy import asks, grant

    from privtab_server.store.store import Store

    store = Store.create(url, _program(), administrators=["root"])
    grants = [grant(f"user:u{n % 5_000}", "SELECT", f"table:l/s{n % 100}/t{n}") for n in range(THERE)]
    store.load({"grants": grants, "owners": [{"entity": "lake:l", "owner": "user:root"}]}, actor="bench")
    connect, connect_bare = _connect(url), _connect(_bare_tables(url))
    changes, inserts = [], []
    for repetition in range(repetitions + 1):
        head = store.head().number

        def change(writer: int, repetition: int = repetition) -> None:
            for number in range(CHANGES):
                store.perform(asks("root", "create", f"schema:l/n{repetition}-{writer}-{number}"))

        changes_rate = WRITERS * CHANGES / _together(change)
        with connect() as connection:
            written = [
                (table, _placeholders(url, len(found[0])), found)
                for table, number in (("state_owners", "change"), ("journal", "number"))
                if (found := connection.execute(f"select * from {table} where {number} > {head}").fetchall())  # noqa: S608
            ]
        if [len(found) for *_, found in written] != [WRITERS * CHANGES] * 2:
            raise WrongAnswerError("changes of the store were lost")

        def insert(writer: int, written: Any = written) -> None:
            with connect_bare() as connection:
                for number in range(writer * CHANGES, (writer + 1) * CHANGES):
                    for table, values, found in written:
                        connection.execute(f"insert into {table} values ({values})", found[number])  # noqa: S608
                    connection.commit()

        inserts_rate = WRITERS * CHANGES / _together(insert)
        if repetition:
            changes.append(changes_rate)
            inserts.append(inserts_rate)
    if store.verify():
        raise WrongAnswerError("the journal of the store does not give its rows")
    return Spread(values=tuple(changes)), Spread(values=tuple(inserts))


def _bare_tables(url: str) -> str:
    """Another database with the tables of a store."""
    from privtab_server.store.store import Store

    if "://" not in url:
        bare = f"{url}.bare"
    else:
        import psycopg

        with psycopg.connect(_address(url), autocommit=True) as connection:
            connection.execute("create database bare")
        bare = make_url(url).set(database="bare").render_as_string(hide_password=False)
    Store.create(bare, _program())
    return bare


def _placeholders(url: str, count: int) -> str:
    return ", ".join(["%s" if "://" in url else "?"] * count)


def load(grants: int) -> tuple[float, float, float]:
    """Seconds, processor seconds and the most MB of memory of a process that loads grants into a new store."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(Path(folder) / "grants.db"), str(grants)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    spent, cpu, memory = json.loads(done.stdout)
    return spent, cpu, memory


def _load(url: str, grants: int) -> None:
    from lake_policy import grant

    from privtab_server.store.store import Store

    rows = {"grants": [grant(f"user:u{n % 50_000}", "SELECT", f"table:l/s{n % 1_000}/t{n}") for n in range(grants)]}
    store = Store.create(url, _program())
    started, cpu = time.perf_counter(), time.process_time()
    store.load(rows, actor="bench")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps([time.perf_counter() - started, time.process_time() - cpu, memory]))


def _program() -> Any:
    from lake_policy import POLICY

    from privtab.pipeline import load_program

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lake.yaml"
        path.write_text(POLICY, encoding="utf-8")
        return load_program(path)


@contextmanager
def _file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "grants.db")


@contextmanager
def _postgresql() -> Iterator[str]:
    from postgresql_server import postgresql

    with postgresql(durable=True) as url:
        yield url


def _connect(url: str) -> Callable[[], Any]:
    """A way to connect with the bare driver, with the same guarantees as the store."""
    if "://" in url:
        import psycopg

        return lambda: psycopg.connect(_address(url))

    def sqlite() -> Any:
        connection = sqlite3.connect(url, timeout=60)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        return connection

    return sqlite


def _address(url: str) -> str:
    """The address for the driver itself."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _together(work: Callable[[int], None]) -> float:
    """Seconds until all writers are done."""
    writers = [Thread(target=work, args=(writer,)) for writer in range(WRITERS)]
    started = time.perf_counter()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    return time.perf_counter() - started


if __name__ == "__main__":
    _load(sys.argv[1], int(sys.argv[2]))
