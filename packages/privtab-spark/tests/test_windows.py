"""Spark decides by the rows of a state that hold at one time: the call's, another one, or each row's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import pipeline
from privtab.base import AccessDenied, HasWindows, UsageError, Window
from privtab.bundle import shard_bundles, state_bundle
from privtab.bundle.pack import shard_file
from privtab.client import BundleLocation
from privtab.state import from_tables, load_raw_state, validate
from privtab_spark import decide, entitlements, plan, require, visible
from privtab_spark.policies import open_policy
from privtab_spark.state import read_state
from privtab_spark.state.bundles import bundled, rows_of_bundles

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


@pytest.fixture(
    params=[
        "rows",
        "bundle",
        "shards",
        pytest.param("tables", marks=pytest.mark.long),
        pytest.param("written", marks=pytest.mark.long),
    ]
)
def sources(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Any]:
    policy, state = tmp_path / "lake.yaml", tmp_path / "state.yaml"
    policy.write_text(POLICY)
    state.write_text(STATE)
    if request.param == "rows":
        return str(policy), str(state)
    if request.param in {"tables", "written"}:
        tables = frames(request.getfixturevalue("spark"))
        if request.param == "tables":
            return str(policy), tables
        read_state(request.getfixturevalue("spark"), tables, str(policy)).write(tmp_path / "written")
        return str(policy), str(tmp_path / "written")
    program = pipeline.load_program(policy)
    rows, _ = validate(program, load_raw_state(state))
    if request.param == "shards":
        folder = tmp_path / "shards"
        folder.mkdir()
        for key, part in shard_bundles(program, rows).items():
            (folder / shard_file(key)).write_bytes(part)
        return str(policy), str(folder)
    bundle = tmp_path / "state.tar.gz"
    bundle.write_bytes(state_bundle(program, rows))
    return str(policy), str(bundle)


@pytest.mark.parametrize("sources", ["bundle", "shards"], indirect=True)
def test_the_rows_of_bundles_with_times_are_from_one_reading(
    sources: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, where = open_policy(sources[0]), sources[1]
    location = BundleLocation.of
    read = []

    def noted(source: str) -> Any:
        read.append(source)
        return location(source)

    monkeypatch.setattr(BundleLocation, "of", noted)
    rows = rows_of_bundles(policy, where)
    assert len(rows.windows["grants"]) == len(rows.grants)
    with pytest.raises(HasWindows) as raised:
        bundled(policy, where)
    assert raised.value.state == rows
    assert read == [where, where]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_a_job_decides_for_one_time_or_each_row_for_its_own(
    how: str, spark: SparkSession, sources: tuple[str, Any]
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
def test_the_matrix_the_listing_and_the_gate_are_of_one_time(spark: SparkSession, sources: tuple[str, Any]) -> None:
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


@pytest.mark.slow
def test_the_plan_states_the_time(spark: SparkSession, sources: tuple[str, Any]) -> None:
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
def test_a_wrong_time_is_bad_usage(spark: SparkSession, sources: tuple[str, Any], at: Any, why: str) -> None:
    df = spark.createDataFrame([("ann", "m/t")], "user string, path string")
    with pytest.raises(UsageError, match=why):
        decide(df, *sources, **LOAD, at=at)


def test_a_column_of_times_must_mean_moments(spark: SparkSession, sources: tuple[str, Any]) -> None:
    df = spark.createDataFrame([("ann", "m/t", "2026-04-01T00:00:00Z")], "user string, path string, t string")
    with pytest.raises(UsageError, match="a column of the type string"):
        decide(df, *sources, **LOAD, at=F.col("t"))


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """The tables of the state, with times as text and as timestamps, and a source without times beside one with them."""
    found = {}
    for table, rows in yaml.load(STATE, yaml.BaseLoader).items():  # noqa: S506  (all cells are text)
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = [tuple(row.get(name) for name in names) for row in rows]
        found[table] = spark.createDataFrame(cells, ", ".join(f"`{name}` string" for name in names))
    found["assignments"] = found["assignments"].withColumn("from", F.to_timestamp("from"))
    return found


@pytest.mark.long
def test_rows_with_times_are_judged_in_spark_as_in_files(spark: SparkSession, tmp_path: Path) -> None:
    policy = tmp_path / "lake.yaml"
    policy.write_text(POLICY)
    grant = ("user:ann", "allow", "SELECT", "catalog:m")
    times = [
        (None, None), (None, None), ("2026-04-01T00:00:00Z", None), ("2026-04-01T02:00:00+02:00", ""),
        ("2026-04-01", None), (None, "2026-04-01T00:00:00"), ("1500-01-01T00:00:00Z", "9999-01-01T00:00:00Z"),
        ("1677-09-21T00:12:43.145224193Z", "2262-04-11T23:47:16.854775806Z"), ("soon", "late"),
    ]  # fmt: skip
    columns = ("grantee", "effect", "privilege", "entity", "from", "until")
    rows = [dict(zip(columns, (*grant, *edges), strict=True)) for edges in times]
    program = pipeline.load_program(policy)
    state, local = validate(program, from_tables({"grants": rows}, "grants"))
    schema = ", ".join(f"`{name}` string" for name in columns)
    read = read_state(spark, {"grants": spark.createDataFrame([(*grant, *edges) for edges in times], schema)}, program)
    found = [row for row in read.findings().collect() for _ in range(row.rows)]
    assert sorted((row.code, row.severity) for row in found) == sorted((f.code, f.severity) for f in local)
    messages = {(f.message, f.help) for f in local if f.code == "S170"}
    assert {(row.message, row.help) for row in found if row.code == "S170"} == messages
    with pytest.raises(HasWindows) as raised:
        read.state(allow_partial=True)
    timed: Any = raised.value.state
    assert timed.edges() == state.edges()
    for at in {Window().begin, Window().end - 1, *(edge + step for edge in state.edges() for step in (-1, 0, 1))} - {
        Window().end
    }:
        assert timed.at(at).tables["grants"].count() == len(state.at(at).grants), at


def test_tables_whose_rows_have_no_window_refuse_one(spark: SparkSession, sources: tuple[str, Any]) -> None:
    """Ignoring the column would make what holds for a time a lasting one."""
    members = spark.createDataFrame([("ann", "catalog:m", "x")], "user string, of string, until string")
    df = spark.createDataFrame([("ann", "m/t")], "user string, path string")
    with pytest.raises(UsageError, match="unknown column `until`"):
        decide(df, sources[0], {"members": members}, **LOAD)
