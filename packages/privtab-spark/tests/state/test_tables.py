"""One validated state, from whatever stands for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from privtab.base import DecisionUnavailable, Entity, StateInvalid, UsageError
from privtab.bundle import shard_bundles, state_bundle
from privtab.bundle.pack import shard_files
from privtab.ir import Program, program_from_json
from privtab.ir.nodes import Privilege
from privtab.pipeline import policy_artifacts
from privtab.state import Assignment, Grant, State
from privtab_spark.state import read_state, state_tables, tables
from privtab_spark.state.schemas import TABLES
from privtab_spark.state.tables import names_of

STATE = State(
    members=(("ann", Entity("lake", "l")),),
    memberships=(("ann", "hr"),),
    assignments=(
        Assignment(principal="user:ann", role="keeper", scope=Entity("lake", "l")),
        Assignment(principal="group:hr", role="clerk"),
    ),
    grants=(
        Grant(grantee="role:clerk", effect="allow", privilege="ALL", entity=Entity("schema", "l/s")),
        Grant(grantee="user:ann", effect="deny", privilege="SELECT", entity=Entity("table", "l/s/a%2Fb")),
    ),
    owners=((Entity("schema", "l/s"), "user:ann"),),
    service_admins=("root",),
)


def rows(state: State) -> dict[str, set[object]]:
    return {table: set(getattr(state, table)) for table in TABLES}


def test_a_state_of_this_process_has_its_sets_resolved(spark: SparkSession, shop: Program) -> None:
    resolved = state_tables(spark, shop, STATE)
    grants = {tuple(row) for row in resolved.tables["grants"].collect()}
    assert grants == {
        ("role:clerk", "allow", "SELECT", "schema", "l/s"),
        ("role:clerk", "allow", "CREATE_TABLE", "schema", "l/s"),
        ("user:ann", "deny", "SELECT", "table", "l/s/a%2Fb"),
    }
    assert resolved.counts() == {
        "members": 1, "memberships": 1, "assignments": 2, "grants": 3, "owners": 1, "service_admins": 1,
    }  # fmt: skip
    assert resolved.local(limit=8) is None
    back = resolved.local(limit=9)
    assert back is not None
    assert rows(back) | {"grants": None} == rows(STATE) | {"grants": None}
    assert state_tables(spark, shop, resolved) is resolved


def test_large_tables_are_collected_compressed_and_whole(
    spark: SparkSession, shop: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = state_tables(spark, shop, STATE)
    expected = resolved.local()
    assert expected is not None
    monkeypatch.setattr(tables, "PACKED", 0)
    found = resolved.local()
    assert found is not None
    assert rows(found) == rows(expected)
    for table, frame in resolved.tables.items():
        assert tables.collected(frame.repartition(3)).num_rows == resolved.counts()[table]
        assert tables.collected(frame.where("false")).schema == frame.where("false").toArrow().schema


@pytest.mark.slow
def test_tables_in_spark_are_validated(spark: SparkSession, shop: Program) -> None:
    grants = spark.createDataFrame(
        [("role:clerk", "ALLOW", "ALL", "schema:l/s"), ("role:clerk", "allow", "NONE", "schema:l/s")],
        "grantee string, effect string, privilege string, entity string",
    )
    validated = state_tables(spark, shop, {"grants": grants})
    assert {row.privilege for row in validated.tables["grants"].collect()} == {"SELECT", "CREATE_TABLE"}
    assert [row.code for row in validated.quarantined.collect()] == ["S130"]


@pytest.mark.slow
def test_a_wrong_row_that_may_deny_stops(spark: SparkSession, shop: Program) -> None:
    memberships = spark.createDataFrame([("ann", None)], "user string, group string")
    with pytest.raises(StateInvalid) as raised:
        state_tables(spark, shop, {"memberships": memberships})
    assert [f.code for f in raised.value.findings] == ["S103"]  # type: ignore[attr-defined]
    assert str(raised.value).splitlines() == [
        "1 finding in the state: they may include a denial, and ignoring it would widen access",
        "a DataFrame: memberships: error[S103]: `group` is null",
    ]
    left = read_state(spark, {"memberships": memberships}, shop).state(allow_partial=True)
    assert left.counts()["memberships"] == 0


def test_a_bundle_gives_a_state_that_decides_the_same(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    path = tmp_path / "state.tar.gz"
    path.write_bytes(state_bundle(shop, STATE))
    local = state_tables(spark, shop, path).local()
    assert local is not None
    assert {(g.grantee, g.effect, g.privilege, g.entity) for g in local.grants} == {
        ("role:clerk", "allow", "SELECT", Entity("schema", "l/s")),
        ("role:clerk", "allow", "CREATE_TABLE", Entity("schema", "l/s")),
        ("user:ann", "deny", "SELECT", Entity("table", "l/s/a%2Fb")),
    }
    assigned = {(a.principal, a.role, a.scope) for a in local.assignments}
    assert {("user:ann", "keeper", Entity("lake", "l")), ("user:ann", "clerk", None)} <= assigned
    assert set(local.owners) == set(STATE.owners)


def test_other_things_are_no_state(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a int is not a state"):
        state_tables(spark, shop, 7)
    with pytest.raises(UsageError, match="the table `grants` of the state is a list, not a Spark DataFrame"):
        state_tables(spark, shop, {"grants": []})
    nothing: tuple[object, ...] = ({}, {"entities": spark.range(1).selectExpr("'lake:l' AS entity")})
    for state in nothing:
        with pytest.raises(UsageError, match="has no table of a state; the tables are members"):
            state_tables(spark, shop, state)
    reads: list[Callable[..., Any]] = [state_tables, lambda spark, policy, path: read_state(spark, path, policy)]
    for read in reads:
        with pytest.raises(UsageError, match=f"{tmp_path} has no file of a table of a state"):
            read(spark, shop, tmp_path)


def test_a_state_of_another_policy_is_none(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    tables = state_tables(spark, shop, STATE)
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(shop, STATE))
    bundled = state_tables(spark, shop, tmp_path / "state.tar.gz")
    assert (tables.system, bundled.system, bundled.names) == ("shop", "shop", None)
    other = replace(shop, system="dock")
    for state in (tables, bundled):
        with pytest.raises(UsageError, match="the state is for `shop`, but the policy is for `dock`"):
            state_tables(spark, other, state)
    with pytest.raises(UsageError, match="holds `shop`, but no state of `dock`"):
        state_tables(spark, other, str(tmp_path / "state.tar.gz"))

    sets = {name: members for name, members in shop.sets.items() if name != "ALL"}
    privileges = {**shop.privileges} | {name: Privilege(name=name, on=("lake",)) for name in "WXYZ"}
    differing = replace(shop, sets=sets, privileges=privileges, semantics=replace(shop.semantics, deny="none"))
    expected = "other privileges (`W`, `X`, `Y` and 1 more), sets (`ALL`), denials: read it with this one"
    with pytest.raises(UsageError, match=re.escape(expected)):
        state_tables(spark, differing, tables)
    assert state_tables(spark, differing, bundled) is bundled
    narrower = replace(shop, semantics=replace(shop.semantics, grantees=("role",)))
    for asked, read_for in ((narrower, shop), (shop, narrower)):
        with pytest.raises(UsageError, match="with other grantees: read it with this one"):
            state_tables(spark, asked, state_tables(spark, read_for, STATE))
    # Rules change all day; the rows are the same ones.
    assert state_tables(spark, replace(shop, version="2", rules={}), tables) is tables


def test_a_compiled_policy_has_the_names_of_its_tables(shop: Program) -> None:
    assert names_of(program_from_json(policy_artifacts(shop).program, "json")) == names_of(shop)


def test_a_state_in_shards_is_whole_or_none(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    files = shard_files(shard_bundles(shop, STATE))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert len(state_tables(spark, shop, tmp_path).tables) == len(TABLES)
    people = next(tmp_path / name for name in files if name.startswith("people"))
    with pytest.raises(DecisionUnavailable, match="1 of its shards are missing, such as `lake:l`"):
        state_tables(spark, shop, people)
