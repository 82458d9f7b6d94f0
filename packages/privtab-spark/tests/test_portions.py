"""Decisions in portions: rows that are no requests, frames and states that are lopsided, rows that change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from decision_rows import CATALOGS as POLICY
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import pipeline
from privtab.base import Entity, Request, UsageError
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_spark import decide, portions
from privtab_spark.state import state_tables

NOT_GRANTED = "not granted"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("rows") / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return pipeline.load_program(path)


def in_portions(rows: DataFrame, program: Program, state: State, **more: Any) -> DataFrame:
    """Decide rows with the columns `user`, `action`, `type` and `path`, or with what `more` says."""
    asked: dict[str, Any] = {"subject": "user", "action": F.col("action"), "resource": (F.col("type"), "path")}
    return decide(rows, program, state_tables(rows.sparkSession, program, state), plan="portions", **{**asked, **more})


TABLES: dict[str, Any] = {"action": "read", "resource": ("table", "path")}


def allow(grantee: str, privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(grantee=grantee, effect=effect, privilege=privilege, entity=Entity.parse(entity))  # type: ignore[arg-type]


STATE = State(grants=(allow("user:ann", "USE", "catalog:c"), allow("user:ann", "READ", "catalog:c")))

# user, action, type, path, type and path of `to`, reason
ROWS = [
    ("ann", "read", "table", "c/s/t", None, None, None),
    ("ann", "read", "table", "c/s/t", "nonsense", "///", None),
    ("bob", "read", "table", "c/s/t", None, None, NOT_GRANTED),
    (None, "read", "table", "c/s/t", None, None, "null"),
    ("", "read", "table", "c/s/t", None, None, "null"),
    ("ann", None, "table", "c/s/t", None, None, "null"),
    ("ann", "read", None, "c/s/t", None, None, "null"),
    ("ann", "read", "table", None, None, None, "null"),
    ("ann", "rob", "table", "c/s/t", None, None, "unknown operation"),
    ("ann", "read", "tabel", "c/s/t", None, None, "unknown operation"),
    ("ann", "read", "table", "c//t", None, None, "malformed path"),
    ("ann", "read", "table", "/c/t", None, None, "malformed path"),
    ("ann", "read", "table", "c/s/", None, None, "wrong depth"),
    ("ann", "read", "table", "c/s/%2f", None, None, "malformed path"),
    ("ann", "read", "table", "c/s/5%", None, None, "malformed path"),
    ("ann", "read", "table", "c/s/%%2F25", None, None, "malformed path"),
    ("ann", "read", "table", "c/s/%2%252F", None, None, "malformed path"),
    ("ann", "read", "table", "c/s/a%2Fb%25", None, None, None),
    ("ann", "read", "table", "c/s/it's \\ ü", None, None, None),
    ("ann", "read", "table", "c/s/it's \n", None, None, "malformed path"),
    ("ann", "read", "table", "", None, None, "wrong depth"),
    ("ann", "read", "table", "c", None, None, "wrong depth"),
    ("ann", "read", "table", "c/s", None, None, "wrong depth"),
    ("ann", "read", "table", "c/s/t/u", None, None, "wrong depth"),
    ("ann", "create", "table", "c/s", None, None, None),
    ("ann", "copy", "table", "c/s/t", "table", "c/s/u", None),
    ("ann", "copy", "table", "c/s/t", "schema", "c/s", None),
    ("ann", "copy", "table", "c/s/t", "schema", "d/s", NOT_GRANTED),
    ("ann", "copy", "table", "c/s/t", "catalog", "c", "not of a type that the operation takes"),
    ("ann", "copy", "table", "c/s/t", None, "c/s", "null"),
    ("ann", "copy", "table", "c/s/t", "schema", None, "null"),
    ("ann", "copy", "table", "c/s/t", "schema", "c%", "malformed path"),
    ("ann", "copy", "table", "c/s/t", "schema", "c/s/t", "wrong depth"),
    ("ANN", "read", "table", "c/s/t", None, None, NOT_GRANTED),
    ("ann", "READ", "table", "c/s/t", None, None, "unknown operation"),
    ("ann", "read", "table", "C/s/t", None, None, NOT_GRANTED),
]
SCHEMA = "user string, action string, type string, path string, with_to_type string, with_to_path string, reason string"


@pytest.mark.slow
# Each distinct request is decided once, and the answers are joined to the rows.
@pytest.mark.parametrize(("times", "collation"), [(6, None), pytest.param(1, "UTF8_LCASE", marks=pytest.mark.long)])
def test_rows_that_are_no_requests_are_denied_with_a_reason(
    times: int, collation: str | None, spark: SparkSession, program: Program
) -> None:
    rows = spark.createDataFrame(ROWS, SCHEMA).withColumnsRenamed({"reason": "wanted"})
    if collation:
        # Texts that Spark takes for equal are different names all the same.
        rows = rows.withColumns({name: F.collate(name, collation) for name in rows.columns if name != "wanted"})
    to = (F.col("with_to_type"), "with_to_path")
    decided = in_portions(rows.crossJoin(spark.range(times)), program, STATE, with_={"to": to}).collect()
    assert len(decided) == times * len(ROWS)
    for row in decided:
        assert row["reason"] == row["wanted"], row
        assert row["allowed"] is (row["wanted"] is None), row


@pytest.mark.slow
def test_constants_need_no_column_and_other_columns_stay(spark: SparkSession, program: Program) -> None:
    rows = spark.createDataFrame(
        [("c/s/t", 1, "ann", None), ("c/s/t", 2, "it's", [""]), (None, 3, "ann", [])],
        "path string, `n. 1` int, user string, groups array<string>",  # groups: nothing that this policy asks for
    )
    decided = in_portions(rows, program, STATE, **TABLES)
    assert decided.columns == ["path", "n. 1", "user", "groups", "allowed", "reason"]
    assert {(row[1], row["allowed"], row["reason"]) for row in decided.collect()} == {
        (1, True, None),
        (2, False, NOT_GRANTED),
        (3, False, "null"),
    }


@pytest.mark.long
@pytest.mark.parametrize("few", [0, 50_000])
def test_skewed_frames(few: int, spark: SparkSession, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows are one user's, who has three thousand roles; and everybody asks about one catalog."""
    monkeypatch.setattr(portions, "FEW", few)
    monkeypatch.setattr(portions, "REQUESTS", 2)
    monkeypatch.setattr(portions, "ROWS", 100)
    roles = [f"r{n}" for n in range(3000)]
    state = State(
        assignments=(
            *(Assignment(principal="user:busy", role=role) for role in roles),
            *(Assignment(principal=f"user:u{n}", role=f"r{n}") for n in range(300)),
        ),
        grants=(
            *(allow(f"role:{role}", "USE", "catalog:hot") for role in roles),
            *(allow(f"role:r{n}", "READ", f"schema:hot/s{n % 50}") for n in range(0, 3000, 3)),
            *(allow(f"role:r{n}", "READ", f"table:hot/s{n % 50}/t1", "deny") for n in range(0, 300, 6)),
        ),
    )
    requests = [
        Request(
            user="busy" if n % 2 else f"u{n % 300}", action="read", resource=Entity("table", f"hot/s{n % 50}/t{n % 3}")
        )
        for n in range(6000)
    ]
    reference = Reference(program, state)
    truth: dict[tuple[str, str], bool] = {}
    for request in requests:
        key = request.user, request.resource.id
        if key not in truth:
            truth[key] = reference.decide(request).allowed
    rows = spark.createDataFrame([(r.user, r.resource.id) for r in requests], "user string, path string")
    answers = {(r["user"], r["path"], r["allowed"]) for r in in_portions(rows, program, state, **TABLES).collect()}
    assert answers == {(*key, allowed) for key, allowed in truth.items()}
    assert 50 < sum(truth.values()) < len(truth) - 50


@pytest.mark.slow
@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.long), 8])
def test_rows_that_are_others_when_they_are_read_again_are_not_allowed(
    times: int, spark: SparkSession, program: Program
) -> None:
    """Everybody is denied everything, by rows above the tables or on them; no read of the rows sees those of another."""

    def chance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import random

        import pyarrow as pa

        for batch in batches:
            paths = [f"c/s{random.randrange(400)}/t" for _ in range(batch.num_rows)]
            yield pa.RecordBatch.from_pydict({"path": paths})

    state = State(
        grants=(
            allow("user:ann", "USE", "catalog:c"),
            allow("user:ann", "READ", "catalog:c"),
            *(allow("user:ann", "READ", f"table:c/s{n}/t") for n in range(0, 400, 2)),
            *(allow("user:ann", "READ", f"schema:c/s{n}", "deny") for n in range(0, 400, 2)),
            *(allow("user:ann", "READ", f"table:c/s{n}/t", "deny") for n in range(1, 400, 2)),
        )
    )
    rows = spark.range(400).mapInArrow(chance, "path string").withColumn("user", F.lit("ann"))
    rows = rows.crossJoin(spark.range(times).withColumnRenamed("id", "time"))
    decided = in_portions(rows, program, state, **TABLES)
    counts = {(r["allowed"], r["reason"]): r["count"] for r in decided.groupBy("allowed", "reason").count().collect()}
    assert sum(counts.values()) == 400 * times
    assert set(counts) == {(False, NOT_GRANTED), (False, "changed between reads")}


@pytest.mark.slow
def test_more_privileges_than_one_column_has_bits(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"P{n}" for n in range(100)]
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "privtab: 1\nsystem: many\nversion: '1'\nentities: {box: {item: }}\n"
        f"privileges: [{', '.join(names)}]\nsemantics: {{inheritance: down, deny: overrides}}\n"
        f"tables:\n  item:\n    all: {' + '.join(names)} (item)\n    some: {'/'.join(names[50:])} (item)\n    last: P99 (box)\n",
        encoding="utf-8",
    )
    many = pipeline.load_program(policy)
    state = State(
        grants=(
            *(allow("user:ann", name, "box:b") for name in names),
            allow("user:ann", "P77", "item:b/closed", "deny"),
            allow("user:bob", "P98", "item:b/i"),
        )
    )
    requests = [
        Request(user=user, action=action, resource=Entity("item", path))
        for user in ("ann", "bob", "eve")
        for action in ("all", "some", "last")
        for path in ("b/i", "b/closed")
    ]
    reference = Reference(many, state)
    rows = spark.createDataFrame(
        [(r.user, r.action, "item", r.resource.id, reference.decide(r).allowed) for r in requests],
        "user string, action string, type string, path string, wanted boolean",
    )
    found = in_portions(rows, many, state).collect()
    assert [row["allowed"] for row in found] == [row["wanted"] for row in found]
    assert 0 < sum(row["allowed"] for row in found) < len(requests) == len(found)


def test_streams_are_refused(spark: SparkSession, program: Program) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("'ann' AS user", "'c/s/t' AS path")
    with pytest.raises(UsageError, match="a stream is not divided into portions"):
        in_portions(stream, program, STATE, **TABLES)
