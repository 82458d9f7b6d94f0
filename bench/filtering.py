"""A million entities in a database: a filter's condition, one written by hand for the same user, and deciding row by row."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from measure import Contestant, Report, Spread, Table, Target, race

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from mariadb_server import mariadb
from postgresql_server import postgresql
from sqlalchemy import make_url

from privtab import Client, Embedded
from privtab.bundle.pack import state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import from_tables, validate

COUNT = 1_000_000
POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  table:
    load: USE (catalog) and (READ (table) or owner (table))
"""
SOME = {f"schema{number}": True for number in range(0, 100, 3)}
HIDDEN = {f"table_{number}": True for number in range(4, 4_000, 10)}
"""Names, in their order."""
COLUMNS = {"catalog": "cat", "schema": "sch", "table": "name"}

AT_ONCE = 10_000
ROW_BY_ROW, BATCHES, SINGLY = "row by row", "by an OPA, 10,000 at once", "by an OPA, one by one"
ASKED = {BATCHES: 100_000, SINGLY: 5_000}
"""How many of the entities an OPA is asked about, from which the time for all follows."""

Run: TypeAlias = Callable[[str, Sequence[object]], Sequence[tuple[Any, ...]]]


def rows() -> Iterator[tuple[int, str, str, str]]:
    """The entities: ten catalogs of a hundred schemas."""
    return ((n, f"cat{n % 10}", f"schema{n // 10 % 100}", f"table_{n}") for n in range(COUNT))


def grants() -> list[dict[str, str]]:
    """What ann holds: three catalogs, a third of the schemas of another, and the rest of a fifth but for two schemas and 400 tables."""
    allowed = [("USE", f"catalog:cat{n}") for n in (1, 2, 3, 4, 5)]
    allowed += [("READ", f"catalog:cat{n}") for n in (1, 2, 4, 5)] + [("READ", f"schema:cat3/{name}") for name in SOME]
    denied = ["schema:cat4/schema1", "schema:cat4/schema2"]
    denied += [f"table:cat4/{_schema(name)}/{name}" for name in HIDDEN]
    return [
        *({"grantee": "user:ann", "effect": "allow", "privilege": name, "entity": key} for name, key in allowed),
        *({"grantee": "user:ann", "effect": "deny", "privilege": "READ", "entity": key} for key in denied),
    ]


def by_hand() -> str:
    """What somebody would write who knows what ann may see, and that names of tables are unique and columns have a plain collation."""
    return (
        f"(cat = 'cat3' AND sch IN ({_listed(SOME)})) OR cat IN ('cat1', 'cat2', 'cat5') OR "
        f"(cat = 'cat4' AND sch NOT IN ('schema1', 'schema2') AND name NOT IN ({_listed(HIDDEN)}))"
    )


def by_hand_exactly(dialect: str) -> str:
    """The same of somebody who knows nothing of the columns: they may fold case, and have names that no request can have."""
    compare, beside, control = EXACT[dialect]
    cat, sch, name = (compare.format(column) for column in COLUMNS.values())
    hidden = [f"{_schema(name)}/{name}" for name in HIDDEN]  # no name of a schema or a table in them has a `/`
    controls = " AND ".join(f"{column} <> '' AND NOT {control.format(column)}" for column in ("sch", "name"))
    return (
        f"(({cat} = 'cat3' AND {sch} IN ({_listed(SOME)})) OR {cat} IN ('cat1', 'cat2', 'cat5') OR "
        f"({cat} = 'cat4' AND {sch} NOT IN ('schema1', 'schema2') AND {beside.format(sch, name)} NOT IN ({_listed(hidden)})))"
        f" AND {controls}"
    )


EXACT = {
    "sqlite": ("{} COLLATE BINARY", "{0} || '/' || {1}", "{} GLOB '*[^ -~]*'"),
    "duckdb": ("{} COLLATE C", "{0} || '/' || {1}", "regexp_matches({}, '[[:cntrl:]]')"),
    "postgres": ('{} COLLATE "C"', "{0} || '/' || {1}", "({} ~ '[[:cntrl:]]')"),
    "mysql": ("CAST({} AS BINARY)", "CONCAT({0}, '/', {1})", "({} REGEXP '[[:cntrl:]]')"),
}
"""How each database compares a column byte by byte, joins two, and finds a control character, as somebody would write it."""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _schema(name: str) -> str:
    return f"schema{int(name[6:]) // 10 % 100}"


def _is_visible(catalog: str, schema: str, name: str) -> bool:
    """The same, as the grants say it."""
    if catalog == "cat3":
        return schema in SOME
    if catalog == "cat4":
        return schema not in ("schema1", "schema2") and name not in HIDDEN
    return catalog in ("cat1", "cat2", "cat5")


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Each database with each way, in turn."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        client, bundles = _client(Path(name))
        raced: dict[tuple[str, str], Spread] = {}
        with OpaServer(bundles) as opa, Client(opa.url, system="lake") as asked:
            for dialect, database in DATABASES.items():
                with database() as run:
                    raced |= race(list(_contestants(client, dialect, run)), repetitions)
                    raced |= race(list(_asking(asked, dialect, run)), 1)
    ways = ("by hand, trusting", "by hand", "filter", ROW_BY_ROW, BATCHES, SINGLY)
    lines = [(d, *(f"{COUNT / raced[way, d].median:.2f} s" for way in ways)) for d in DATABASES]
    targets = [
        Target(
            what=f"{d}: filter / by hand, time",
            spread=raced["by hand", d].over(raced["filter", d]),
            wanted=2,
            sense="at most",
        )
        for d in DATABASES
    ]
    targets += [
        Target(
            what=f"{d}: {way} / filter, time",
            spread=raced["filter", d].over(raced[way, d]),
            wanted=20,
            sense="at least",
        )
        for d in DATABASES
        for way in (ROW_BY_ROW, BATCHES, SINGLY)
    ]
    title = "A million entities of a database, of which one user may see 43 %: time until they are counted, preparation included"
    return Report(
        part="filters",
        tables=(Table(title=title, columns=("database", *ways), rows=tuple(lines)),),
        targets=tuple(targets),
    )


def _client(folder: Path) -> tuple[Embedded, list[Path]]:
    (folder / "lake.yaml").write_text(POLICY, encoding="utf-8")
    program = load_program(folder / "lake.yaml")
    state, findings = validate(program, from_tables({"grants": grants()}, "rows"))
    assert not findings
    bundles = [folder / "policy.tar.gz", folder / "state.tar.gz"]
    bundles[0].write_bytes(policy_artifacts(program).bundle())
    bundles[1].write_bytes(state_bundle(program, state))
    return Embedded(*bundles), bundles


def _asking(client: Client, dialect: str, run: Run) -> Iterator[Contestant]:
    """Decisions of an OPA beside the database."""

    def read(way: str) -> list[tuple[str, str]]:
        found = run(f"SELECT cat, sch, name FROM t WHERE id < {ASKED[way]}", ())  # noqa: S608
        return [("table", f"{c}/{s}/{t}") for c, s, t in found]

    def in_batches() -> int:
        return sum(len(client.visible("ann", "load", part)) for part in _batched(read(BATCHES)))

    def one_by_one() -> int:
        return sum(client.check("ann", "load", table) for table in read(SINGLY))

    def answers(way: str, count: Callable[[], int]) -> Sequence[bool]:
        visible = sum(_is_visible(*names) for _, *names in islice(rows(), ASKED[way]))
        return (True,) * ASKED[way] if count() == visible else ()

    for way, count in ((BATCHES, in_batches), (SINGLY, one_by_one)):
        yield Contestant(name=way, size=dialect, run=partial(answers, way, count), truth=(True,) * ASKED[way])


def _batched(tables: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    return (tables[first : first + AT_ONCE] for first in range(0, len(tables), AT_ONCE))


def _contestants(client: Embedded, dialect: str, run: Run) -> Iterator[Contestant]:
    visible = sum(_is_visible(*names) for _, *names in rows())
    truth = (True,) * COUNT  # one answer for each entity, so that rates are entities a second

    def counted(text: str, values: Sequence[object]) -> Sequence[bool]:
        ((count,),) = run(f"SELECT count(*) FROM t WHERE {text}", values)  # noqa: S608  (conditions are what is measured)
        return truth if count == visible else ()

    def filtered() -> Sequence[bool]:
        where = client.filter("ann", "load", "table").sql(dialect, COLUMNS)
        return counted(where.text, where.parameters)

    def row_by_row() -> Sequence[bool]:
        check = client.check
        count = sum(
            check("ann", "load", ("table", f"{c}/{s}/{t}")) for c, s, t in run("SELECT cat, sch, name FROM t", ())
        )
        return truth if count == visible else ()

    trusting, exactly = by_hand(), by_hand_exactly(dialect)
    yield Contestant(name="by hand, trusting", size=dialect, run=lambda: counted(trusting, ()), truth=truth)
    yield Contestant(name="by hand", size=dialect, run=lambda: counted(exactly, ()), truth=truth)
    yield Contestant(name="filter", size=dialect, run=filtered, truth=truth)
    yield Contestant(name=ROW_BY_ROW, size=dialect, run=row_by_row, truth=truth)


@contextmanager
def _sqlite() -> Iterator[Run]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id INT, cat TEXT, sch TEXT, name TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows())
    yield lambda text, values: connection.execute(text, values).fetchall()


@contextmanager
def _duckdb() -> Iterator[Run]:
    import duckdb
    import pyarrow as pa

    table = pa.table(dict(zip(("id", "cat", "sch", "name"), map(list, zip(*rows(), strict=True)), strict=True)))
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
        yield lambda text, values: connection.execute(text, values).fetchall()


@contextmanager
def _postgres() -> Iterator[Run]:
    import psycopg

    with postgresql() as address:
        url = make_url(address)
        where = f"host={url.query['host']} user={url.username} dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id INT, cat TEXT, sch TEXT, name TEXT)")
            with connection.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
                for row in rows():
                    copy.write_row(row)
            connection.execute("ANALYZE t")
            yield lambda text, values: connection.execute(text, values or None).fetchall()


@contextmanager
def _mysql() -> Iterator[Run]:
    import pymysql  # type: ignore[import-untyped]

    with mariadb() as address:
        socket = str(make_url(address).query["unix_socket"])
        with (
            pymysql.connect(unix_socket=socket, user="root", charset="utf8mb4") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE DATABASE d CHARACTER SET utf8mb4")
            cursor.execute("USE d")
            cursor.execute("CREATE TABLE t (id INT, cat VARCHAR(100), sch VARCHAR(100), name VARCHAR(100))")
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s)", list(rows()))
            connection.commit()

            def run(text: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
                cursor.execute(text, values or None)
                return list(cursor.fetchall())

            yield run


DATABASES = {"sqlite": _sqlite, "duckdb": _duckdb, "postgres": _postgres, "mysql": _mysql}
