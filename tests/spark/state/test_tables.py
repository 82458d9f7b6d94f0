"""One validated state, from whatever stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from privtab.bundle.pack import state_bundle
from privtab.errors import StateInvalid, UsageError
from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.spark.state import SparkState, read_state
from privtab.state.nodes import TABLES, Assignment, Grant, State

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
    made = SparkState.of(spark, shop, STATE)
    grants = {tuple(row) for row in made.tables["grants"].collect()}
    assert grants == {
        ("role:clerk", "allow", "SELECT", "schema", "l/s"),
        ("role:clerk", "allow", "CREATE_TABLE", "schema", "l/s"),
        ("user:ann", "deny", "SELECT", "table", "l/s/a%2Fb"),
    }
    assert made.counts() == {
        "members": 1, "memberships": 1, "assignments": 2, "grants": 3, "owners": 1, "service_admins": 1,
    }  # fmt: skip
    assert made.local(limit=8) is None
    back = made.local(limit=9)
    assert back is not None
    assert rows(back) | {"grants": None} == rows(STATE) | {"grants": None}
    assert SparkState.of(spark, shop, made) is made


def test_tables_in_spark_are_validated(spark: SparkSession, shop: Program) -> None:
    grants = spark.createDataFrame(
        [("role:clerk", "ALLOW", "ALL", "schema:l/s"), ("role:clerk", "allow", "NONE", "schema:l/s")],
        "grantee string, effect string, privilege string, entity string",
    )
    made = SparkState.of(spark, shop, {"grants": grants})
    assert {row.privilege for row in made.tables["grants"].collect()} == {"SELECT", "CREATE_TABLE"}
    assert [row.code for row in made.quarantined.collect()] == ["S130"]


def test_a_wrong_row_that_may_deny_stops(spark: SparkSession, shop: Program) -> None:
    memberships = spark.createDataFrame([("ann", None)], "user string, group string")
    with pytest.raises(StateInvalid) as raised:
        SparkState.of(spark, shop, {"memberships": memberships})
    assert [f.code for f in raised.value.findings] == ["S103"]  # type: ignore[attr-defined]
    left = read_state(spark, {"memberships": memberships}, shop).state(allow_partial=True)
    assert left.counts()["memberships"] == 0


def test_a_bundle_gives_a_state_that_decides_the_same(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    path = tmp_path / "state.tar.gz"
    path.write_bytes(state_bundle(shop, STATE))
    local = SparkState.of(spark, shop, path).local()
    assert local is not None
    assert {(g.grantee, g.effect, g.privilege, g.entity) for g in local.grants} == {
        ("role:clerk", "allow", "SELECT", Entity("schema", "l/s")),
        ("role:clerk", "allow", "CREATE_TABLE", Entity("schema", "l/s")),
        ("user:ann", "deny", "SELECT", Entity("table", "l/s/a%2Fb")),
    }
    held = {(a.principal, a.role, a.scope) for a in local.assignments}
    assert {("user:ann", "keeper", Entity("lake", "l")), ("user:ann", "clerk", None)} <= held
    assert set(local.owners) == set(STATE.owners)


def test_other_things_are_no_state(spark: SparkSession, shop: Program) -> None:
    with pytest.raises(UsageError, match="a int is no state"):
        SparkState.of(spark, shop, 7)
