"""Rows that a database takes for one another are shown as the reference decides for each: generated, with the values that drivers give.

Rows come in pairs that differ by case, accents, width, blanks at the end or how a number is written; each table is read in both orders.
"""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any, NamedTuple, Unpack

import pytest
from filtered_databases import FOLDED, MARKS, Run, insert
from pyspark.sql import SparkSession
from seeds import seeds

from privtab.base.attributes import GivenAttributes
from privtab.base.errors import InvalidRequest
from privtab.base.names import encode_name
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.filters.filter import Filter, filter_of
from privtab.filters.sql import SqlOptions
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

POLICY = """\
privtab: 1
system: lake
version: "VERSION"
entities: {schema: {table: }}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
attributes:
  entity:
    level: {integer: [-5, 120], on: [table], from: request}
    color: {enum: [red, Red, "1", "7x"], on: [table], from: request}
    word: {text: true, on: [table], from: request}
    hidden: {bool: true, on: [table], from: request}
  user:
    word: {text: true, from: state}
tables:
  table:
    read: READ (table)
    low: READ (table) and table.level < 50
    ranked: READ (schema) and (table.level >= 2 or table.level = -1)
    colored: READ (table) and (table.color = red or table.color = "1")
    mine: READ (schema) and table.word = user.word
    hide: READ (table) and table.hidden
    shown: READ (schema) and table.hidden = false
"""
NUMBERS = ("7", "07", "7.0", "7e0", "+7", " 7", "7 ", "\uff17")
WORDS = (
    "salaries",
    "Salaries",
    "SALARIES",
    "salaries ",
    "salari\u00e9s",
    "\uff53alaries",
    "sal",
    "stra\u00dfe",
    "strasse",
    "STRASSE",
)
LETTERS = (
    "i",
    "I",
    "\u0131",
    "\u0130",
    "e\u0301",
    "\u00e9",
    "e",
    "E ",
    "\ufb01",
    "fi",
    "\u212b",
    "\u00c5",
    "a\u200d",
    "a",
)
"""Texts of which some collation, or a comparison of numbers, takes one for another."""
NOT_WHOLE = (2.5, 49.999, -0.5, 1e30)
TEXTS = ("100", "7x", "1e2", " 2", "2 ", "02", "2.0", "", "true", "0x10", "\u0662")
VALUES: Mapping[str, Sequence[object]] = {
    "level": (None, -6, -5, -1, 0, 1, 2, 2.0, 49, 50, 100, 120, 121, 2**60, *NOT_WHOLE, *TEXTS, b"7"),
    "color": (None, "red", "Red", "RED", "red ", "r\u00e9d", "1", "1.0", "7x", 1, 1.0, 7, b"red"),
    "word": (None, "", "7", 7, 7.0, "a\nb", *NUMBERS, *WORDS, b"salaries", "x" * 65_537),
    "hidden": (None, True, False, 0, 1, 2, 0.5, "0", "1", "true", "false", "t", b"1"),
}
"""What columns have, where their types let them."""
ASKED = {
    "read": None,
    "low": "level",
    "ranked": "level",
    "colored": "color",
    "mine": "word",
    "hide": "hidden",
    "shown": "hidden",
}
"""The attribute that each operation compares."""
TYPES: Mapping[str, Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    # SQLite puts any value into any column, or turns it into another one first.
    "sqlite": {
        name: dict.fromkeys(("", "TEXT COLLATE NOCASE", "NUMERIC", "INTEGER", "REAL", "BLOB", "BOOLEAN"), (int, float, str, bytes))
        for name in VALUES
    },
    "duckdb": {
        "level": {"INTEGER": (int,), "BIGINT": (int,), "DOUBLE": (int, float), "DECIMAL(9, 3)": (Decimal,), "UTINYINT": (int,)},
        "color": {"TEXT COLLATE NOCASE": (str,), "INTEGER": (int,), "DOUBLE": (int, float)},
        "word": {"TEXT COLLATE NOACCENT": (str,), "VARCHAR": (str,), "INTEGER": (int,)},
        "hidden": {"BOOLEAN": (bool,), "INTEGER": (int,), "DOUBLE": (int, float)},
    },
    "postgres": {
        "level": {"INTEGER": (int,), "BIGINT": (int,), "DOUBLE PRECISION": (int, float), "REAL": (int, float), "NUMERIC": (Decimal,)},
        "color": {"TEXT COLLATE folding": (str,), "VARCHAR(70000)": (str,), "INTEGER": (int,), "NAME": (str,)},
        "word": {"TEXT COLLATE folding": (str,), "INTEGER": (int,), "DOUBLE PRECISION": (int, float), "BYTEA": (bytes,)},
        "hidden": {"BOOLEAN": (bool,)},
    },
    "mysql": {
        "level": {
            "INT": (int,), "BIGINT": (int,), "DOUBLE": (int, float), "FLOAT": (int, float), "DECIMAL(9,3)": (Decimal,),
            "LONGTEXT": (str,), "VARCHAR(90) COLLATE utf8mb4_bin": (str,), "BLOB": (bytes, str), "JSON": (), "DATE": (),
        },
        "color": {
            "LONGTEXT": (str,), "VARCHAR(90) CHARACTER SET latin1": (str,), "INT": (int,), "DOUBLE": (int, float),
            "BLOB": (bytes, str), "ENUM('red', '1')": (),
        },
        "word": {"LONGTEXT": (str,), "INT": (int,), "DOUBLE": (int, float), "LONGBLOB": (bytes, str)},
        "hidden": {"BOOLEAN": (bool,), "INT": (int,), "DOUBLE": (int, float), "LONGTEXT": (str,), "BLOB": (bytes,)},
    },
    "spark": {
        "level": {"INT": (int,), "DOUBLE": (float,), "DECIMAL(9,3)": (Decimal,)},
        "color": {"STRING COLLATE UTF8_LCASE": (str,), "INT": (int,)},
        "word": {"STRING COLLATE UNICODE_CI": (str,), "DOUBLE": (float,)},
        "hidden": {"BOOLEAN": (bool,)},
    },
}  # fmt: skip
"""Types of a column for each attribute, with the values that it takes."""
NAMED = {
    "sqlite": (FOLDED["sqlite"], "TEXT COLLATE RTRIM", "VARCHAR(99)"),
    "duckdb": (FOLDED["duckdb"], "TEXT COLLATE NOACCENT", "TEXT COLLATE NOCASE.NOACCENT"),
    "postgres": (FOLDED["postgres"], "VARCHAR(99) COLLATE folding", "VARCHAR(99)"),
    # Only columns that are no TEXT have the results of subqueries kept.
    "mysql": (
        "TEXT",
        "VARCHAR(99)",
        "VARCHAR(99) COLLATE utf8mb4_unicode_ci",
        "VARCHAR(99) CHARACTER SET utf16",
    ),
    "spark": ("STRING COLLATE UTF8_LCASE", "STRING COLLATE UNICODE_CI_AI", "STRING"),
}
"""Types of columns with names."""


class World(NamedTuple):
    """A policy with a state, and who decides by them."""

    program: Program
    engine: RowEngine
    reference: Reference

    def filter(self, action: str) -> Filter:
        return filter_of(self.engine, Request(user="ann", action=action, resource=Entity("table", "")))

    def shows(self, action: str, schema: str, name: str, attributes: Mapping[str, object]) -> bool:
        """The decision of the reference; what is no request shows nothing."""
        path = f"{encode_name(schema)}/{encode_name(name)}"
        given = GivenAttributes(entity={name: value for name, value in attributes.items() if value is not None})
        asked = Request(user="ann", action=action, resource=Entity("table", path), attributes=given)
        try:
            vocabulary(self.program).check(asked)
        except InvalidRequest:
            return False
        return self.reference.decide(asked).allowed


@cache
def _program(version: str) -> tuple[Program, Mapping[str, Any]]:
    program = load_program(SourceFile(path="lake.yaml", text=POLICY.replace("VERSION", version)))
    return program, policy_artifacts(program).program


def some_world(random: Random, names: Sequence[str], version: str = "1") -> World:
    """A state that allows some of the names and denies others, which are alike."""
    program, document = _program(version)
    keys = [f"table:{encode_name(a)}/{encode_name(b)}" for a in names for b in names]
    keys += [f"schema:{encode_name(name)}" for name in names]
    grants = [
        {"grantee": "user:ann", "effect": random.choice(("allow", "deny")), "privilege": "READ", "entity": key}
        for key in random.sample(keys, min(len(keys), 12))
    ]
    tables = {
        "grants": grants,
        "attributes": [{"user": "ann", "attribute": "word", "value": random.choice((*NUMBERS, *WORDS))}],
    }
    state, found = validate(program, from_tables(tables, "rows"))
    # A state cannot say names with blanks at the edges or with letters that nobody sees; columns hold them all the same.
    assert all(finding.severity == "warning" or finding.code in {"S108", "S116"} for finding in found), found[:3]
    return World(program, RowEngine(document, Index(index_document(program, state))), Reference(program, state))


def some_rows(random: Random, names: Sequence[str], kinds: Mapping[str, tuple[type, ...]]) -> list[list[object]]:
    """Rows of `id`, the names, and values of the attributes that the columns' types take; alike ones follow each other."""

    def value(attribute: str, taken: tuple[type, ...]) -> object:
        found = [
            one
            for one in VALUES[attribute]
            if one is None or type(one) in taken or (taken == (bool,) and one in (True, False) and type(one) is bool)
        ]
        if Decimal in taken:
            found = [None, *(Decimal(text) for text in ("-5", "2", "2.5", "49.999", "50.000", "100"))]
        if taken == (int,):
            found = [one for one in found if one is None or (isinstance(one, int) and 0 <= one < 200)]
        return random.choice(found)

    pairs = [(a, b) for a in names for b in names]
    return [
        [number, *pair, *(value(attribute, taken) for attribute, taken in kinds.items())]
        for number, pair in enumerate(pair for pair in pairs for _ in range(2))
    ]


def _given(attribute: str, dialect: str, value: object) -> object:
    """The value that a driver gives, as a request has it: whole decimals are numbers, and some databases have numbers for truth values."""
    if isinstance(value, Decimal) and value == int(value):
        return int(value)
    numbers: tuple[type, ...] = {"sqlite": (int,), "mysql": (int, float)}.get(dialect, ())
    if attribute == "hidden" and isinstance(value, numbers) and value in (0, 1):
        return bool(value)
    return value


class Database:
    """A database with tables that are made again and again."""

    def __init__(self, dialect: str, run: Run) -> None:
        self.dialect = dialect
        self.run = run

    def make(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        """Let a table have these columns, by name with their type, and these rows."""
        self.run(f"DROP TABLE IF EXISTS {table}", ())
        self.run(f"CREATE TABLE {table} ({', '.join(f'{name} {type_}' for name, type_ in columns.items())})", ())
        if rows:
            insert(self.run, self.dialect, table, rows)

    def selected(
        self, found: Filter, columns: Mapping[str, str], **options: Unpack[SqlOptions]
    ) -> Iterator[set[object]]:
        """The `id` of rows of the table `p` that the filter shows, in each way to say it."""
        where = found.sql(self.dialect, columns, **options)
        yield {row[0] for row in self.run(f"SELECT id FROM p WHERE {where.text}", where.parameters)}


def _compare(seed: int, database: Database) -> int:
    """Compare in one world; how many rows were shown."""
    random, dialect = Random(seed), database.dialect
    names = random.sample(random.choice((NUMBERS, WORDS, LETTERS)), 4)
    world = some_world(random, names)
    chosen = {attribute: random.choice(sorted(types)) for attribute, types in TYPES[dialect].items()}
    kinds = {attribute: TYPES[dialect][attribute][type_] for attribute, type_ in chosen.items()}
    named = [random.choice(NAMED[dialect]) for _ in range(3)]
    columns = {"id": "INT", "sch": named[0], "name": named[1], **{f"{name}_": type_ for name, type_ in chosen.items()}}
    rows, shown = some_rows(random, names, kinds), 0
    asked: dict[str, tuple[Filter, dict[str, str], set[object]]] = {}
    for ordered in (rows, rows[::-1]):
        database.make("p", columns, ordered)
        stored = database.run("SELECT * FROM p", ())
        for action, attribute in ASKED.items():
            if action not in asked:
                found = world.filter(action)
                at = {"schema": "p.sch", "table": "p.name"} | ({attribute: f"p.{attribute}_"} if attribute else {})
                asked[action] = found, at, _expected(world, found, dialect, attribute, stored)
            found, at, expected = asked[action]
            for selected in database.selected(found, at):
                wrong = [row for row in stored if row[0] in selected ^ expected]
                assert not wrong, (seed, action, chosen, found.sql(dialect, at), wrong[:3])
            shown += len(expected)
        if dialect in MARKS:
            shown += _compare_joined(random, database, world, names, named[2])
    return shown


def _expected(
    world: World, found: Filter, dialect: str, attribute: str | None, stored: Sequence[Sequence[object]]
) -> set[object]:
    """The `id` of the rows that the reference shows; `Filter.allows` says the same of each."""
    expected = set()
    for row in stored:
        values = dict(zip(VALUES, row[3:], strict=True))
        given = {attribute: _given(attribute, dialect, values[attribute])} if attribute else {}
        shows = world.shows(found.action, str(row[1]), str(row[2]), given)
        assert found.allows(str(row[1]), str(row[2]), **given) is shows, (found.action, row)
        expected |= {row[0]} if shows else set()
    return expected


def _compare_joined(random: Random, database: Database, world: World, names: Sequence[str], type_: str) -> int:
    """Compare what a table of names says, in which there are the rows of other policies, and of other states."""
    found = world.filter("read")
    if not found.size:
        return 0
    others = [some_world(random, names, version).filter("read") for version in ("1", "2", "1 ")]
    columns = {name: "INT" if name in ("depth", "allowed") else type_ for name in found.columns_of_rows}
    stored = database.run("SELECT id, sch, name FROM p", ())
    expected = {row[0] for row in stored if world.shows("read", str(row[1]), str(row[2]), {})}

    def selected(filters: Sequence[Filter]) -> set[object]:
        rows = [row for one in filters for row in one.rows()]
        database.make("f", columns, random.sample(rows, len(rows)))
        at = {"schema": "p.sch", "table": "p.name"}
        return next(database.selected(found, at, table="f", most=0))

    assert selected([found, *others[1:]]) == expected
    assert selected(others) == (expected if others[0].edition == found.edition else set())
    if others[0].edition != found.edition:
        assert selected([found, *others]) == set()
    return len(expected)


QUICK = ("sqlite", "duckdb")


def _cases() -> list[Any]:
    """SQLite and DuckDB are quick; the other databases have to be started."""
    found = []
    for dialect in MARKS:
        for case in seeds(range(40), quick=4 if dialect in QUICK else 0):
            seed, marks = (case, ()) if isinstance(case, int) else (case.values[0], case.marks)
            found.append(pytest.param(dialect, seed, marks=marks))
    return found


@pytest.mark.parametrize(("dialect", "seed"), _cases())
def test_rows_that_are_alike_are_shown_as_the_reference_says(dialect: str, run: Run, seed: int) -> None:
    _compare(seed, Database(dialect, run))


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 2_500, 250))  # in four databases: 10,000 worlds with 16 pairs of names
@pytest.mark.parametrize("dialect", list(MARKS))
def test_many_rows_that_are_alike(dialect: str, run: Run, search_seed: int, first: int) -> None:
    assert sum(_compare(search_seed + first + seed, Database(dialect, run)) for seed in range(250)) > 250


class Frames(Database):
    """Views of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("spark", lambda text, _: spark.sql(text).collect())
        self.spark = spark

    def make(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        schema = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        self.spark.createDataFrame(rows, schema).createOrReplaceTempView(table)

    def selected(
        self, found: Filter, columns: Mapping[str, str], **options: Unpack[SqlOptions]
    ) -> Iterator[set[object]]:
        where = found.sql("spark", columns, **options)
        texts = self.spark.sql(f"SELECT id FROM p WHERE {where.text}", args=list(where.parameters) or None)
        frame = self.spark.table("p").where(found.spark(columns)).select("id")
        yield from ({row[0] for row in one.collect()} for one in (frame, texts))


@pytest.mark.slow
def test_rows_that_are_alike_on_spark(spark: SparkSession) -> None:
    _compare(1, Frames(spark))


@pytest.mark.long
def test_many_rows_that_are_alike_on_spark(spark: SparkSession, search_seed: int) -> None:
    assert (
        sum(_compare(search_seed + seed, Frames(spark)) for seed in range(300)) > 300
    )  # of 32 rows in both orders each


class Expressions(Database):
    """Expressions of Ibis over DuckDB."""

    def __init__(self) -> None:
        self.connection = pytest.importorskip("ibis").duckdb.connect()
        super().__init__("duckdb", lambda text, values: self.connection.con.execute(text, values).fetchall())

    def selected(
        self, found: Filter, columns: Mapping[str, str], **options: Unpack[SqlOptions]
    ) -> Iterator[set[object]]:
        table = self.connection.table("p")
        named = {level: table[column.removeprefix("p.")] for level, column in columns.items()}
        yield (
            set(table.filter(found.ibis(named)).id.execute())
            if not options
            else next(super().selected(found, columns, **options))
        )


def test_rows_that_are_alike_in_ibis() -> None:
    database = Expressions()
    assert sum(_compare(seed, database) for seed in range(12))
