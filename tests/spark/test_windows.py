"""Spark decides by the rows of a state that hold at one time: the call's, another one, or each row's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import pipeline
from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.bundle.shards import shard_file
from privtab.errors import AccessDenied, UsageError
from privtab.spark import decide, entitlements, plan, require, visible
from privtab.state.load import load
from privtab.state.validate import validate

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {table:}}
privileges: [SELECT]
semantics: {inheritance: down, deny: overrides}
tables: {table: {load: SELECT (table)}}
"""
STATE = """\
memberships:
  - {user: ann, group: staff, until: 2026-05-01T00:00:00Z}
assignments:
  - {principal: "group:staff", role: clerk, from: 2026-04-01T00:00:00Z}
grants:
  - {grantee: "role:clerk", effect: allow, privilege: SELECT, entity: "catalog:m"}
  - {grantee: "user:ben", effect: allow, privilege: SELECT, entity: "catalog:m"}
  - {grantee: "user:ben", effect: deny, privilege: SELECT, entity: "table:m/t", until: 2026-04-01T00:00:00.000000500Z}
"""
APRIL, MAY = datetime(2026, 4, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
LOAD: dict[str, Any] = {"subject": "user", "action": "load", "resource": ("table", "path")}
EXPECTED = {
    APRIL - TICK: (False, False),
    APRIL: (True, False),
    APRIL + TICK: (True, True),
    MAY - TICK: (True, True),
    MAY: (False, True),
}
"""Whether ann and ben may load, by time."""


@pytest.fixture(params=["rows", "bundle", "shards"])
def sources(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    policy, state = tmp_path / "lake.yaml", tmp_path / "state.yaml"
    policy.write_text(POLICY)
    state.write_text(STATE)
    if request.param == "rows":
        return str(policy), str(state)
    program = pipeline.load_program(policy)
    rows, _ = validate(program, load(state))
    if request.param == "shards":
        folder = tmp_path / "shards"
        folder.mkdir()
        for key, part in shard_bundles(program, rows).items():
            (folder / shard_file(key)).write_bytes(part)
        return str(policy), str(folder)
    bundle = tmp_path / "state.tar.gz"
    bundle.write_bytes(state_bundle(program, rows))
    return str(policy), str(bundle)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kernel", "joins"])
def test_a_job_decides_for_one_time_or_each_row_for_its_own(
    how: str, spark: SparkSession, sources: tuple[str, str]
) -> None:
    df = spark.createDataFrame([("ann", "m/t"), ("ben", "m/t")], "user string, path string")

    def answers(**at: Any) -> tuple[bool, ...]:
        decided = decide(df, sources[0], sources[1], plan=how, **(LOAD | at)).orderBy("user").collect()
        return tuple(row.allowed for row in decided)

    assert answers(at="2026-03-31T23:59:59.999999999Z") == (False, False)
    for at, allowed in [(APRIL + TICK, (True, True)), (MAY, (False, True))]:
        assert answers(at=at) == allowed
    assert answers() == (False, True), "now is later"
    timed = spark.createDataFrame(
        [(user, "m/t", at) for at in [*EXPECTED, None] for user in ("ann", "ben")],
        "user string, path string, t timestamp",
    )
    decided = decide(timed, *sources, plan=how, **LOAD, at=F.col("t")).collect()
    found = {(row.t.astimezone(UTC) if row.t else None, row.user): (row.allowed, row.reason) for row in decided}
    assert found.pop((None, "ann")) == found.pop((None, "ben")) == (False, "null")
    assert {key: yes for key, (yes, _) in found.items()} == {
        (at, user): yes for at, both in EXPECTED.items() for user, yes in zip(("ann", "ben"), both, strict=True)
    }


@pytest.mark.slow
def test_the_matrix_the_listing_and_the_gate_are_of_one_time(spark: SparkSession, sources: tuple[str, str]) -> None:
    def users(at: datetime | None) -> list[str]:
        rows = entitlements(*sources, ["table:m/t"], spark=spark, at=at).collect()
        return sorted(row.user for row in rows)

    assert [users(at) for at in (APRIL - TICK, APRIL, APRIL + TICK, MAY)] == [[], ["ann"], ["ann", "ben"], ["ben"]]
    df = spark.createDataFrame([("ann", "m/t"), ("ben", "m/t")], "user string, path string")
    seen = visible(df, *sources, subject="user", action="load", resource=("table", "path"), at=APRIL)
    assert [row.user for row in seen.collect()] == ["ann"]
    assert require(*sources, "ann", "load", "table:m/t", spark=spark, at=APRIL).allowed
    with pytest.raises(AccessDenied):
        require(*sources, "ann", "load", "table:m/t", spark=spark, at=MAY)


def test_the_plan_states_the_time(spark: SparkSession, sources: tuple[str, str]) -> None:
    df = spark.createDataFrame([("ann", "m/t")], "user string, path string")
    assert "rows of the state count that hold at 2026-04-01T00:00:00Z" in str(plan(df, *sources, **LOAD, at=APRIL))
    assert "rows of the state count that hold at " in str(plan(df, *sources, **LOAD))


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("2026-04-01", "date without a time"),
        (datetime(2026, 4, 1), "without a time zone"),  # noqa: DTZ001  (the point)
        (7, "give a datetime"),
    ],
)
def test_a_wrong_time_is_bad_usage(spark: SparkSession, sources: tuple[str, str], at: Any, why: str) -> None:
    df = spark.createDataFrame([("ann", "m/t")], "user string, path string")
    with pytest.raises(UsageError, match=why):
        decide(df, *sources, **LOAD, at=at)


def test_a_column_of_times_must_mean_moments(spark: SparkSession, sources: tuple[str, str]) -> None:
    df = spark.createDataFrame([("ann", "m/t", "2026-04-01T00:00:00Z")], "user string, path string, t string")
    with pytest.raises(UsageError, match="a column of the type string"):
        decide(df, *sources, **LOAD, at=F.col("t"))


def test_tables_that_spark_reads_may_not_have_windows(spark: SparkSession, sources: tuple[str, str]) -> None:
    """Ignoring the column would make a grant for a time a lasting one."""
    grants = spark.createDataFrame(
        [("user:ann", "allow", "SELECT", "catalog:m", "2026-04-01T00:00:00Z")],
        "grantee string, effect string, privilege string, entity string, until string",
    )
    df = spark.createDataFrame([("ann", "m/t")], "user string, path string")
    with pytest.raises(UsageError, match="until"):
        decide(df, sources[0], {"grants": grants}, **LOAD)
