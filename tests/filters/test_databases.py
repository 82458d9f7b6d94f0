"""Databases select the rows that a filter allows, whatever their columns fold, pad or leave out."""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import NamedTuple

import pytest
from filtered_databases import FOLDED, MARKS, Run, insert
from pyspark.sql import SparkSession
from seeds import seeds
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, select
from unusual_names import ALIKE, ALIKE_UNSEEN, CARRIED, INVISIBLE, UNUSABLE

from privtab.base.errors import UsageError
from privtab.base.names import encode_name
from privtab.base.sql_text import literal
from privtab.filters.expression import EVERYTHING, NOTHING, Expression, OneOf, Paths, Value, all_of, any_of, is_valid
from privtab.filters.filter import Filter
from privtab.filters.regions import Beginning, Region, Regions, Split

LEVELS = ("catalog", "schema", "table")
COLUMNS = {"catalog": "t.cat", "schema": "t.sch", "table": "t.name"}
ROWS = 600
NUL = "\0"


def filter_with(expression: Expression) -> Filter:
    return Filter(user="ann", action="load", type="table", levels=LEVELS, expression=expression)


def some_names(random: Random) -> list[str | None]:
    """Names to mix: a few that are alike, unusual ones, and what is no name."""
    alike = [name for group in random.sample((*ALIKE, *ALIKE_UNSEEN), 3) for name in group]
    found = [*alike, *random.sample((*CARRIED, *INVISIBLE), 6), "Sales", "a_b", "o'brien"]
    folded = [fold(name) for name in found for fold in (str.upper, str.lower, lambda name: f"{name} ")]
    spoilt = [f"a{character}b" for character in random.sample(UNUSABLE, 3) if not "\ud800" <= character <= "\udfff"]
    return [*found, *random.sample(folded, 6), *spoilt, None, ""]


def some_expression(random: Random, names: Sequence[str | None], depth: int = 0) -> Expression:
    """Each way says something of every level, and lists valid names alone."""
    usable = sorted({name for name in names if name and is_valid(name)})
    if depth < 2 and random.random() < 0.5:
        return any_of([some_expression(random, names, depth + 1) for _ in range(random.randint(2, 3))])
    parts: list[Expression] = []
    for level in LEVELS:
        listed = tuple(sorted(random.sample(usable, random.randrange(4))))
        parts.append(OneOf(level, listed, other=not listed or random.random() < 0.5))
    if random.random() < 0.5:
        paths = tuple(sorted({tuple(random.sample(usable, 2)) for _ in range(3)}))
        some = Paths(LEVELS[1:], paths, other=random.random() < 0.7)
        parts = [parts[0], some, *(parts[1:] if some.other else ())]
    return all_of(parts)


def some_filter(random: Random, usable: Sequence[str]) -> Filter:
    """A filter of a state: some paths, each allowed or not below what its beginning says."""

    def region(depth: int) -> Region:
        if depth == len(LEVELS) or random.random() < 0.2:
            allowed.append(random.random() < 0.5)
            return len(allowed) - 1
        named = {encode_name(name): region(depth + 1) for name in random.sample(usable, min(4, len(usable)))}
        allowed.append(random.random() < 0.4)
        return Split(named, len(allowed) - 1)

    allowed: list[bool] = []
    found = Regions(levels=LEVELS, bounds={}, whole=region(0), examples=())
    return replace(filter_with(found.expression(allowed)), beginnings=tuple(found.beginnings(allowed)))


class Row(NamedTuple):
    id: int
    cat: str | None
    sch: str | None
    name: str | None


def some_rows(random: Random, names: Sequence[str | None]) -> list[Row]:
    return [Row(number, *(random.choice(names) for _ in LEVELS)) for number in range(ROWS)]


def allowed_rows(found: Filter, rows: Sequence[Row]) -> set[object]:
    return {row.id for row in rows if found.allows(row.cat, row.sch, row.name)}


def fill(run: Run, dialect: str, rows: Sequence[Row]) -> None:
    """Let the table have these rows."""
    run("DELETE FROM t", ())
    insert(run, dialect, "t", rows)


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
@pytest.mark.parametrize("part", seeds(range(12), quick=1))
def test_a_database_selects_what_the_filter_allows(dialect: str, run: Run, part: int) -> None:
    for seed in range(part * 8, part * 8 + 8):
        random = Random(seed)
        names = [name for name in some_names(random) if dialect != "postgres" or NUL not in (name or "")]
        fill(run, dialect, rows := some_rows(random, names))
        for _ in range(10):
            found = filter_with(some_expression(random, names))
            where = found.sql(dialect, COLUMNS)
            selected = {row[0] for row in run(f"SELECT id FROM t WHERE {where.text}", where.parameters)}
            expected = allowed_rows(found, rows)
            assert selected == expected, [where, *[row for row in rows if row.id in selected ^ expected][:3]]


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
@pytest.mark.parametrize("part", seeds(range(6), quick=1))
def test_a_table_of_names_says_the_same(dialect: str, run: Run, part: int) -> None:
    for seed in range(part * 6, part * 6 + 6):
        random = Random(seed)
        names = [name for name in some_names(random) if dialect != "postgres" or NUL not in (name or "")]
        fill(run, dialect, rows := some_rows(random, names))
        found = some_filter(random, sorted({name for name in names if name and is_valid(name)}))
        columns = ", ".join(
            f"{name} {'INT' if name in ('depth', 'allowed') else FOLDED[dialect]}" for name in found.columns_of_rows
        )
        run("DROP TABLE IF EXISTS f", ())
        run(f"CREATE TABLE f ({columns})", ())
        # Keys that a column's collation folds to the same one are not the same.
        for key in ("mine", "MINE", "mine ", "other"):
            for row in found.rows(key) if key == "mine" else [(key, 0, 1, None, None, None)]:
                run(f"INSERT INTO f VALUES ({', '.join([MARKS[dialect]] * len(row))})", row)
        where = found.sql(dialect, COLUMNS, table="f", key="mine", most=0)
        selected = {row[0] for row in run(f"SELECT id FROM t WHERE {where.text}", where.parameters)}
        assert (where.form == "joined") is (found.size > 0)
        assert selected == allowed_rows(found, rows), (seed, where)
        run("DELETE FROM f", ())
        run("INSERT INTO f VALUES ('MINE', 0, 1, NULL, NULL, NULL)", ())
        assert not run(f"SELECT id FROM t WHERE {where.text}", where.parameters) or where.form == "inline"


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
def test_what_was_looked_at_before_is_no_answer_for_a_name_like_it(dialect: str, run: Run) -> None:
    """Results of subqueries are kept by columns of a limited length, whose collation takes `Salaries` for `salaries`."""
    kind = {"mysql": "VARCHAR(50)", "postgres": "VARCHAR(50) COLLATE folding"}.get(dialect, FOLDED[dialect])
    allowed = (
        Beginning(("lake",), True),
        Beginning(("lake", "hr", "salaries"), False),
        Beginning(("lake", "HR", "Pay"), False),
    )
    found = replace(filter_with(OneOf("table", ("a", "b"))), beginnings=allowed)
    names = [(schema, name) for schema in ("hr", "HR") for name in ("Salaries", "salaries", "salaries ", "pay", "Pay")]
    where = found.sql(dialect, {"catalog": "q.cat", "schema": "q.sch", "table": "q.name"}, table="f", most=0)
    for ordered in (names, names[::-1]):
        for table, columns in (("q", ("cat", "sch", "name")), ("f", found.columns_of_rows)):
            run(f"DROP TABLE IF EXISTS {table}", ())
            types = {"depth": "INT", "allowed": "INT"}
            run(f"CREATE TABLE {table} ({', '.join(f'{name} {types.get(name, kind)}' for name in columns)})", ())
        insert(run, dialect, "q", [("lake", *name) for name in ordered])
        insert(run, dialect, "f", list(found.rows()))
        selected = run(f"SELECT sch, name FROM q WHERE {where.text}", where.parameters)
        assert sorted(map(tuple, selected)) == sorted({*names} - {("hr", "salaries"), ("HR", "Pay")})


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
def test_nothing_and_everything_are_said(dialect: str, run: Run) -> None:
    run("DELETE FROM t", ())
    run("INSERT INTO t VALUES (1, NULL, 'a', 'b')", ())
    for expression, count in ((NOTHING, 0), (EVERYTHING, 1)):
        where = filter_with(expression).sql(dialect, COLUMNS)
        assert where.parameters == ()
        assert len(run(f"SELECT id FROM t WHERE {where.text}", ())) == count
    assert filter_with(NOTHING).sql(dialect, COLUMNS).text == "FALSE"


def test_sqlalchemy_selects_what_the_filter_allows() -> None:
    random = Random(5)
    names = some_names(random)
    table = Table("t", MetaData(), Column("id", Integer), *(Column(name, String) for name in ("cat", "sch", "name")))
    found = some_filter(random, sorted({name for name in names if name and is_valid(name)}))
    columns = {"catalog": table.c.cat, "schema": table.c.sch, "table": "t.name"}
    with create_engine("sqlite://").connect() as connection:
        table.metadata.create_all(connection)
        rows = some_rows(random, names)
        connection.execute(table.insert(), [dict(zip(table.c.keys(), row, strict=True)) for row in rows])
        where = found.sqlalchemy("sqlite", columns)
        selected = set(connection.scalars(select(table.c.id).where(where, table.c.id > 10)))
    assert selected == allowed_rows(found, rows[11:])
    with pytest.raises(UsageError, match="has a colon"):
        found.sqlalchemy("sqlite", {**columns, "table": '"a:b"'})


@pytest.mark.parametrize("seed", seeds(range(4), quick=0, full=1))
def test_spark_selects_what_the_filter_allows(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    names = some_names(random)
    rows = some_rows(random, names)
    frame = spark.createDataFrame(
        rows, "id INT, cat STRING COLLATE UTF8_LCASE, sch STRING COLLATE UNICODE_CI, name STRING"
    )
    columns = {"catalog": "cat", "schema": frame["sch"], "table": "name"}
    for _ in range(4):
        for found in (
            some_filter(random, sorted({n for n in names if n and is_valid(n)})),
            filter_with(some_expression(random, names)),
        ):
            selected = {row[0] for row in frame.where(found.spark(columns)).select("id").collect()}
            assert selected == allowed_rows(found, rows)
            frame.createOrReplaceTempView("t")
            where = found.sql("spark", {"catalog": "t.cat", "schema": "t.sch", "table": "t.name"})
            by_text = spark.sql(f"SELECT id FROM t WHERE {where.text}", args=list(where.parameters) or None).collect()
            assert {row[0] for row in by_text} == selected


VALUES = (
    Value("rank", (1, 3)),
    Value("rank", between=(2, 5)),
    Value("rank", absent=True),
    Value("hidden", (False,)),
    Value("hidden", (True,)),
    Value("color", ("red",)),
    Value("color", ("red", "Blue")),
    Value("color", ("red", "o'brien"), other=True),
    Value("color", (), other=True),
    Value("absent", absent=True),
    Value("absent", ("a",)),
)
ATTRIBUTES = [
    {"id": number, "rank": rank, "hidden": hidden, "color": color}
    for number, (rank, hidden, color) in enumerate(
        product(
            (None, 0, 1, 2, 2.5, 3, 5, 6),
            (None, True, False),
            (None, "red", "RED", "blue", "Blue ", "o'brien", "", "a\nb"),
        )
    )
]


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
def test_attributes_in_columns_are_compared(dialect: str, run: Run) -> None:
    run("DROP TABLE IF EXISTS a", ())
    run(f"CREATE TABLE a (id INT, rank_ DOUBLE PRECISION, hidden BOOLEAN, color {FOLDED[dialect]})", ())
    mark = MARKS[dialect]
    for row in ATTRIBUTES:
        run(f"INSERT INTO a VALUES ({mark}, {mark}, {mark}, {mark})", list(row.values()))
    for value in VALUES:
        found = Filter(
            user="ann", action="load", type="t", expression=value, attributes=("absent", "color", "hidden", "rank")
        )
        where = found.sql(dialect, {"rank": "rank_", "hidden": "hidden", "color": "a.color"})
        selected = {row[0] for row in run(f"SELECT id FROM a WHERE {where.text}", where.parameters)}
        assert selected == {row["id"] for row in ATTRIBUTES if found.allows(**row)}, where


FOLDING = ("utf8mb4", "utf8mb3", "utf16", "latin1")
"""Character sets of columns that fold case by default."""


@pytest.mark.parametrize("dialect", ["mysql"])
def test_values_of_row_filters_are_themselves_alone_where_columns_fold(dialect: str, run: Run) -> None:
    """A row of `Ben` is none of `ben`; blanks at the end are left out of the comparison, so no value has one."""
    assert literal("ben ", dialect) is None
    assert literal(["ben", "ben "], dialect) is None
    assert literal("ben ", "postgres") == "'ben '"
    names = ("ben", "Ben", "BEN", "bén", "b\\en", "o'brien", "O'Brien", "straße", "strasse", "ab", "a b")
    columns = ", ".join(f"{kind} VARCHAR(20) CHARACTER SET {kind}" for kind in FOLDING)
    run("DROP TABLE IF EXISTS held", ())
    run(f"CREATE TABLE held (id INT, {columns})", ())
    for number, name in enumerate(names):
        run("INSERT INTO held VALUES (%s, %s, %s, %s, %s)", [number, *[name] * len(FOLDING)])
    # By gbk, the last byte of the character and the backslash behind it are one character, and nothing escapes the quote.
    hostile = "\u563f\\' USING utf8mb4)) OR 1=1 -- x"
    for connected, mode in product(("utf8mb4", "latin1", "gbk", "sjis"), ("", "NO_BACKSLASH_ESCAPES")):
        run(f"SET NAMES {connected}", ())
        run(f"SET sql_mode = '{mode}'", ())
        assert run(f"SELECT id FROM held WHERE utf8mb4 = {literal(hostile, dialect)}", ()) == []
        for column, (number, name) in product(FOLDING, enumerate(names)):
            one, listed = literal(name, dialect), literal([name, "nobody"], dialect)
            for condition in (f"{column} = {one}", f"{column} IN {listed}", f"{one} = {column}"):
                assert run(f"SELECT id FROM held WHERE {condition}", ()) == [(number,)], condition
            assert len(run(f"SELECT id FROM held WHERE {column} NOT IN {listed}", ())) == len(names) - 1
    run("SET NAMES utf8mb4", ())
    run("SET sql_mode = DEFAULT", ())


@pytest.mark.slow
def test_attributes_in_columns_are_compared_on_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [
            (row["id"], None if row["rank"] is None else float(row["rank"]), row["hidden"], row["color"])
            for row in ATTRIBUTES
        ],
        "id INT, rank DOUBLE, hidden BOOLEAN, color STRING COLLATE UTF8_LCASE",
    )
    for value in VALUES:
        found = Filter(
            user="ann", action="load", type="t", expression=value, attributes=("absent", "color", "hidden", "rank")
        )
        selected = frame.where(found.spark({name: name for name in ("rank", "hidden", "color")})).select("id").collect()
        assert {row[0] for row in selected} == {row["id"] for row in ATTRIBUTES if found.allows(**row)}, value


def test_ibis_selects_what_the_filter_allows() -> None:
    ibis = pytest.importorskip("ibis")
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t (id INT, cat TEXT COLLATE NOCASE, sch TEXT COLLATE NOACCENT, name TEXT)")
    table = connection.table("t")
    columns = {"catalog": table.cat, "schema": table.sch, "table": table.name}
    selected_some = 0
    for seed in range(6):
        random = Random(seed)
        names = some_names(random)
        rows = some_rows(random, names)
        connection.raw_sql("DELETE FROM t")
        connection.con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        usable = sorted({name for name in names if name and is_valid(name)})
        nesting = OneOf("catalog", tuple(usable[:2]), above=(encode_name(usable[0]),))
        for found in (
            filter_with(some_expression(random, names)),
            some_filter(random, usable),
            replace(
                filter_with(all_of([nesting, *(OneOf(level, (), other=True) for level in LEVELS[1:])])),
                bounds={"catalog": 3},
            ),
        ):
            selected = set(table.filter(found.ibis(columns)).id.execute())
            assert selected == allowed_rows(found, rows), (seed, found.expression)
            selected_some += bool(selected)
    assert selected_some > 6
    assert table.filter(filter_with(NOTHING).ibis(columns)).count().execute() == 0
    assert table.filter(filter_with(EVERYTHING).ibis(columns)).count().execute() == ROWS
    with pytest.raises(Exception, match="HexDigest"):
        ibis.to_sql(table.filter(filter_with(OneOf("table", ("a",))).ibis(columns)), dialect="sqlite")
