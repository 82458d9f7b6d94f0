"""Groups in groups and roles held by roles in Spark: the bundles of `bundle.pack`, and the findings of `validate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pyarrow as pa
import pytest
import worlds
from pyspark.sql import DataFrame, SparkSession
from seeds import seeds
from worlds import EPOCH

from privtab.base import WINDOW_COLUMNS, Entity, StateInvalid, Window
from privtab.bundle import shard_bundles
from privtab.ir import Program, vocabulary
from privtab.state import TABLE_COLUMNS, Assignment, Grant, State, from_tables, links, validate, with_derived_rows
from privtab_spark.state import build, read_state
from privtab_spark.state.row_checks import _derived
from privtab_spark.state.schemas import CANONICAL, TABLES

HOUR = 3_600_000_000_000
LAKE, SCHEMA = Entity("lake", "l"), Entity("schema", "l/s")
STATE = State(
    members=(("ann", LAKE),),
    memberships=(("ann", "eu"), ("group:eu", "all"), ("group:hr", "eu"), ("bob", "hr")),
    assignments=(
        Assignment(principal="group:all", role="clerk"),
        Assignment(principal="user:ann", role="engineer", scope=SCHEMA),
        Assignment(principal="role:engineer", role="keeper", scope=LAKE),
        Assignment(principal="role:engineer", role="clerk", scope=Entity("lake", "m")),
        Assignment(principal="role:clerk", role="reader"),
    ),
    grants=(
        Grant(grantee="role:reader", effect="allow", privilege="ALL", entity=SCHEMA),
        Grant(grantee="group:eu", effect="deny", privilege="SELECT", entity=Entity("table", "l/s/t")),
        Grant(grantee="role:clerk", effect="allow", privilege="SELECT", entity=Entity("lake", "m")),
    ),
    owners=((SCHEMA, "group:all"),),
)


@pytest.fixture(scope="module")
def nested(shop: Program) -> Program:
    return replace(shop, semantics=replace(shop.semantics, hierarchy=("groups", "roles"), groups=("state", "request")))


def frames(spark: SparkSession, state: State) -> dict[str, DataFrame]:
    columns = {table: of.all if table in state.windows else of.names for table, of in TABLE_COLUMNS.items()}
    rows = state.to_tables()
    return {
        table: spark.createDataFrame(
            [tuple(row.get(c) for c in columns[table]) for row in rows[table]],
            ", ".join(f"`{c}` string" for c in columns[table]),
        )
        for table in TABLES
    }


@pytest.mark.long
def test_a_build_is_what_the_packer_makes_also_after_a_change_of_a_role_of_a_role(
    spark: SparkSession, nested: Program, tmp_path: Path
) -> None:
    built = build(spark, frames(spark, STATE), nested, tmp_path)
    assert {key: Path(built.file(key)).read_bytes() for key in ("people", *built.shards)} == shard_bundles(
        nested, STATE
    )
    # The new row has no scope, and concerns what Ann holds within the schema.
    more = (*STATE.assignments, Assignment(principal="role:engineer", role="reader"))
    changed = replace(STATE, assignments=more)
    again = build(spark, frames(spark, changed), nested, tmp_path)
    files = {key: Path(again.file(key)).read_bytes() for key in ("people", *again.shards)}
    assert files == shard_bundles(nested, changed) != shard_bundles(nested, STATE)


@pytest.mark.long
def test_chains_of_rows_that_hold_for_a_time_are_built_as_from_files(
    spark: SparkSession, nested: Program, tmp_path: Path
) -> None:
    hours = [Window(EPOCH + n * HOUR, EPOCH + (n + 3) * HOUR) for n in range(5)]
    timed = replace(STATE, windows={"memberships": hours[:4], "assignments": [*hours[:3], hours[4], hours[2]]})
    built = build(spark, frames(spark, timed), nested, tmp_path)
    assert {key: Path(built.file(key)).read_bytes() for key in ("people", *built.shards)} == shard_bundles(
        nested, timed
    )


@pytest.mark.long
def test_a_cycle_is_the_finding_that_files_have(spark: SparkSession, nested: Program, tmp_path: Path) -> None:
    rows = (*STATE.memberships, ("group:all", "hr"), ("group:it", "it"))
    roles = (*STATE.assignments, Assignment(principal="role:reader", role="clerk"))
    state = replace(STATE, memberships=rows, assignments=roles)
    read = read_state(spark, frames(spark, state), nested)
    valid, found = validate(nested, from_tables(state.to_tables(), "state.json"))
    errors = sorted((f.place.table, f.code, f.message, f.help) for f in found if f.severity == "error")
    quarantined = read.quarantined().select("table", "code", "message", "help").collect()
    assert sorted(map(tuple, quarantined)) == errors
    assert len(errors) == 6
    good = {tuple(row) for row in read.good("memberships").collect()}
    assert good == set(valid.memberships)
    with pytest.raises(StateInvalid, match=r"contain each other|hold each other|contains itself"):
        build(spark, frames(spark, state), nested, tmp_path)


@pytest.mark.parametrize("seed", seeds(range(30), quick=8))
@pytest.mark.parametrize("timed", [False, True], ids=["lasting", "timed"])
def test_the_workers_derive_the_rows_that_files_have(seed: int, *, timed: bool) -> None:
    program = generated_programs.program(seed, "hierarchy")
    state = worlds.state(program, seed)
    state = worlds.timed(state, seed) if timed else state
    whole = with_derived_rows(program, state)
    for kind in program.semantics.hierarchy:
        table, _, _, prefix = links.LINK_COLUMNS[kind]
        window = WINDOW_COLUMNS if table in state.windows else ()
        rows = cells(state, table, window)
        columns = [*CANONICAL[table], *window]
        arrays = [pa.array([row[at] for row in rows], pa.string()) for at in range(len(columns))]
        batch = pa.RecordBatch.from_arrays(arrays, names=columns)
        derived_rows = [row for row in rows if str(row[0]).startswith(prefix)]
        (found,) = _derived(table, derived_rows, vocabulary(program).keys, columns, iter([batch]))
        assert {tuple(row.values()) for row in found.to_pylist()} | set(rows) == set(cells(whole, table, window))


def cells(state: State, table: str, window: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows of a table as Spark has them."""
    found: list[tuple[Any, ...]] = []
    for row, at in zip(getattr(state, table), state.windows_of(table), strict=True):
        edges = at.cells() if window else ()
        if table == "memberships":
            found.append((*row, *edges))
        else:
            place = (row.scope.type, row.scope.id) if row.scope else (None, None)
            found.append((row.principal, row.role, *place, *edges))
    return found
