"""A million random rows in a database: filters select those that the engine allows, one by one."""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filtered_databases import FOLDED, Run, insert
from pyspark.sql import DataFrame, SparkSession
from unusual_names import ALIKE, ALIKE_UNSEEN, CARRIED, INVISIBLE

from privtab.base.names import encode_name
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.filters.expression import is_valid
from privtab.filters.filter import Filter, filter_of
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

COUNT = 1_000_000
POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group]}}
tables:
  table:
    list: {requires: anyone, each: "USE (catalog) and (READ (table) or owner (schema) or owner (table))"}
"""
COLUMNS = {"catalog": "cat", "schema": "sch", "table": "name"}
USERS = ("ann", "ben", "eve", "nobody")


class Row(NamedTuple):
    id: int
    cat: str | None
    sch: str | None
    name: str | None

    @property
    def names(self) -> tuple[str | None, ...]:
        """Those of all levels."""
        return (self.cat, self.sch, self.name)


def _pool(random: Random) -> list[str]:
    """Names that are alike, odd or folded to each other; short ones, since there are many rows."""
    found = {name for group in (*ALIKE, *ALIKE_UNSEEN) for name in group} | {
        name for name in (*CARRIED, *INVISIBLE) if len(name) < 100
    }
    found |= {fold(name) for name in sorted(found) for fold in (str.upper, str.lower)} | {"Sales", "sales ", "o'brien"}
    return random.sample(sorted(name for name in found if is_valid(name)), 60)


@cache
def rows() -> tuple[Row, ...]:
    """Some levels have no name, an empty one, or one with a control character."""
    random = Random(35)
    pools: list[list[str | None]] = [
        [*_pool(random), *spoilt] for spoilt in ([None, ""], [None, "a\n"], [None, "", "a\u2028"])
    ]
    pools[2] += [f"t{number}" for number in range(2_000)]
    return tuple(Row(number, *(random.choice(pool) for pool in pools)) for number in range(COUNT))


@cache
def _engine() -> RowEngine:
    random = Random(36)
    names = [
        sorted({encode_name(name) for row in rows()[:20_000] if (name := row.names[at]) and is_valid(name)})
        for at in range(3)
    ]

    def entity() -> str:
        depth = random.choice((1, 2, 2, 3, 3, 3))
        return (
            f"{('catalog', 'schema', 'table')[depth - 1]}:{'/'.join(random.choice(names[at]) for at in range(depth))}"
        )

    grantees = ("user:ann", "user:ben", "group:staff", "role:reader")
    rights = {
        (random.choice(grantees), random.choice(("READ", "READ", "USE")), entity()): random.choice(("allow", "deny"))
        for _ in range(600)
    }
    rights |= {
        (who, "USE", f"catalog:{name}"): "allow" for who in grantees for name in names[0] if random.random() < 0.6
    }
    tables = {
        "grants": [
            {"grantee": who, "effect": effect, "privilege": privilege, "entity": key}
            for (who, privilege, key), effect in rights.items()
        ],
        "owners": [
            {"entity": key, "owner": "user:eve"}
            for key in sorted({entity() for _ in range(200)})
            if "catalog" not in key
        ],
        "memberships": [{"user": user, "group": "staff"} for user in ("ann", "eve")],
        "assignments": [{"principal": "user:ben", "role": "reader"}],
    }
    program = load_program(SourceFile(path="lake.yaml", text=POLICY))
    state, found = validate(program, from_tables(tables, "rows"))
    assert all(finding.severity == "warning" for finding in found), found[:3]
    return RowEngine(policy_artifacts(program).program, Index(index_document(program, state)))


@cache
def asked(user: str) -> tuple[Filter, frozenset[int]]:
    """The filter of a user, and the rows that the engine allows."""
    request = Request(user=user, action="list", resource=Entity("table", ""))
    valid = [row for row in rows() if all(name is not None and is_valid(name) for name in row.names)]
    items = [Entity("table", "/".join(encode_name(str(name)) for name in row.names)) for row in valid]
    return filter_of(_engine(), request), frozenset(valid[at].id for at in _engine().visible(request, items))


def _chosen() -> Iterator[tuple[Filter, frozenset[int]]]:
    for user in USERS:
        found, expected = asked(user)
        assert bool(expected) is (user != "nobody")
        assert len(expected) < COUNT / 2
        yield found, expected


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgres", "mysql"])
def test_a_database_selects_what_the_engine_allows(dialect: str, run: Run, tmp_path: Path) -> None:
    run("DROP TABLE IF EXISTS m", ())
    # MariaDB folds with the collation of the database; no name here is long.
    kind = FOLDED[dialect] if dialect != "mysql" else "VARCHAR(200)"
    run(f"CREATE TABLE m (id INT, cat {kind}, sch {kind}, name {kind})", ())
    if dialect == "duckdb":
        _write(tmp_path / "m.parquet")
        run(f"INSERT INTO m SELECT * FROM '{tmp_path / 'm.parquet'}'", ())
    else:
        insert(run, dialect, "m", rows(), at_once=5_000)
    for found, expected in _chosen():
        where = found.sql(dialect, COLUMNS)
        assert {row[0] for row in run(f"SELECT id FROM m WHERE {where.text}", where.parameters)} == expected, where.text
    run("DROP TABLE m", ())


@pytest.mark.long
def test_spark_selects_what_the_engine_allows(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "m.parquet")
    schema = "id INT, cat STRING COLLATE UTF8_LCASE, sch STRING COLLATE UNICODE_CI, name STRING"
    spark.read.schema(schema).parquet(str(tmp_path / "m.parquet")).createOrReplaceTempView("m")
    for found, expected in _chosen():
        by_column = spark.table("m").where(found.spark(COLUMNS)).select("id")
        assert _ids(by_column) == expected
        where = found.sql("spark", COLUMNS)
        by_text = spark.sql(f"SELECT id FROM m WHERE {where.text}", args=list(where.parameters) or None)
        assert _ids(by_text) == expected


def _ids(frame: DataFrame) -> set[object]:
    return set(frame.toArrow()["id"].to_pylist())


def _write(file: Path) -> None:
    columns = zip(Row._fields, zip(*rows(), strict=True), strict=True)
    kinds = {"id": pa.int32()}
    pq.write_table(pa.table({name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns}), file)
