"""Nested types, flat ids and attributes in states that Spark reads: the rows and findings of `validate`, and the same index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import worlds
from pyspark.sql import DataFrame, SparkSession

from privtab.base import StateInvalid, UnsupportedError, UsageError, strict_loads
from privtab.bundle import shard_bundles
from privtab.bundle.pack import LISTING_FILE, shard_files
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import TABLE_COLUMNS, State, from_tables, index_bytes, validate
from privtab_spark.state import Build, Read, SparkState, build, read_state, state_tables
from privtab_spark.state.read import read_written

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {paper:}, ticket: {comment:}}, group: , role: }
types: {folder: {nested: 3}, ticket: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides, hierarchy: [groups, roles], owner: {kinds: [user, group]}}
attributes:
  user: {staff: {bool: true, from: state}, tags: {set: [day, night], from: state}, mfa: bool}
  entity: {color: {enum: [red, blue], on: [folder, ticket], from: state}}
tables:
  folder: {list: READ (folder)}
  paper: {read: READ (paper) and user.staff}
  ticket: {read: READ (ticket) and ticket.color = red, close: owner (ticket) and user.mfa}
  comment: {read: READ (comment)}
"""
Rows = Mapping[str, Sequence[tuple[str | None, ...]]]
ROWS: Rows = {
    "entities": [
        ("ticket:t1", "drive:d", "the first"),
        ("ticket:t1", "drive:d", "the same"),
        ("ticket:t2", "drive:d", None),
        ("ticket:t3", "drive:d", None),
        ("ticket:t3", "drive:e", None),
        ("ticket:t4", "folder:d/a", None),
        ("folder:d/a", "drive:d", None),
        ("ticket:t/5", "drive:d", None),
        ("", "drive:d", None),
    ],
    "attributes": [
        ("staff", "true", "ann", None),
        ("staff", "true", "ben", None),
        ("staff", "false", "ben", None),
        ("tags", "day", "ann", None),
        ("tags", "night", "ann", None),
        ("tags", "dusk", "ann", None),
        ("color", "red", None, "ticket:t1"),
        ("color", "red", None, "folder:d/a/b"),
        ("color", "blue", None, "folder:d/a/b"),
        ("color", "red", None, "ticket:t9"),
        ("color", "red", None, "paper:d/a/p"),
        ("colour", "red", None, "folder:d/a"),
        ("mfa", "true", "ann", None),
        ("staff", "true", "ann", "folder:d/a"),
        ("staff", "true", None, None),
    ],
    "grants": [
        ("user:ann", "allow", "READ", "folder:d/a"),
        ("user:ann", "allow", "READ", "folder:d/a/b/c"),
        ("user:ann", "allow", "READ", "folder:d/a/b/c/e"),
        ("user:ann", "allow", "READ", "folder:d"),
        ("user:ann", "allow", "READ", "paper:d/a/b/p"),
        ("role:clerk", "allow", "READ", "ticket:t1"),
        ("role:clerk", "allow", "READ", "ticket:t3"),
        ("role:clerk", "allow", "READ", "comment:t2/c"),
        ("role:clerk", "allow", "READ", "comment:t9/c"),
        ("role:clerk", "allow", "READ", "ticket:d/t1"),
    ],
    "owners": [("ticket:t2", "group:staff"), ("ticket:t8", "ann")],
    "members": [("ann", "drive:d")],
    "memberships": [("ann", "eu"), ("group:eu", "staff"), ("group:x", "y"), ("group:y", "x")],
    "assignments": [
        ("user:ann", "clerk", "ticket:t1"),
        ("role:chief", "clerk", None),
        ("user:ben", "chief", "ticket:t7"),
    ],
}


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("drives") / "drives.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_program(path)


def frames(spark: SparkSession, rows: Rows) -> dict[str, DataFrame]:
    return {
        table: spark.createDataFrame(
            list(cells), ", ".join(f"`{column}` string" for column in TABLE_COLUMNS[table].names)
        )
        for table, cells in rows.items()
    }


def frames_of(spark: SparkSession, state: State) -> dict[str, DataFrame]:
    """The tables of a state."""
    tables = state.to_tables()
    rows = {t: [tuple(row.get(c) for c in TABLE_COLUMNS[t].names) for row in own] for t, own in tables.items() if own}
    return frames(spark, rows)


def files_rows(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """The same rows as files have them: a cell that is absent has no column."""
    return {
        table: [{c: t for c, t in zip(TABLE_COLUMNS[table].names, row, strict=True) if t is not None} for row in own]
        for table, own in rows.items()
    }


def same_index(program: Program, found: SparkState, state: State) -> bool:
    local = found.local()
    assert local is not None
    return index_bytes(program, local) == index_bytes(program, state)


@pytest.mark.slow
def test_rows_with_features_are_judged_as_rows_of_files_are(
    spark: SparkSession, drives: Program, tmp_path: Path
) -> None:
    state, findings = validate(drives, from_tables(files_rows(ROWS), "rows"))
    assert len(state.entities) == 2
    assert len(state.attributes) == 5
    read: Read = read_state(spark, frames(spark, ROWS), drives)
    manifest = read.write(tmp_path / "written")
    assert {table: manifest["rows"][table] for table in ("entities", "attributes")} == {"entities": 2, "attributes": 5}
    folder = tmp_path / "written" / manifest["data"] / "findings"
    found = [
        (row.table, row.code, row.message, row.help or None, json.dumps(json.loads(row.row), sort_keys=True))
        for row in spark.read.parquet(str(folder)).collect()
        if row.severity == "error"
    ]
    cells = [{name: text for name, text in f.row.items() if text} for f in findings]
    expected = [
        (f.place.table, f.code, f.message, f.help, json.dumps(row, sort_keys=True))
        for f, row in zip(findings, cells, strict=True)
        if f.severity == "error"
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {code for _, code, *_ in found} >= {
        "S112",
        "S180",
        "S181",
        "S182",
        "S184",
        "S186",
        "S187",
        "S188",
        "S189",
        "S190",
    }
    with pytest.raises(StateInvalid, match="may include a denial"):
        read_written(spark, tmp_path / "written", drives)
    written = read_written(spark, tmp_path / "written", drives, allow_partial=True)
    assert same_index(drives, written, state)
    assert written.counts()["attributes"] == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "features",
    [
        pytest.param(("nested", "implies"), marks=pytest.mark.long),
        pytest.param(("attributes", "below"), marks=pytest.mark.long),
        ("flat", "nested", "hierarchy"),
    ],
    ids="-".join,
)
def test_a_state_read_in_spark_has_the_same_index(spark: SparkSession, features: tuple[str, ...]) -> None:
    program = generated_programs.program(3, *features)
    state, findings = validate(program, from_tables(worlds.state(program, 3).to_tables(), "rows"))
    assert not [finding for finding in findings if finding.severity == "error"]
    assert same_index(program, state_tables(spark, program, frames_of(spark, state)), state)
    assert same_index(program, SparkState.from_state(spark, program, state), state)


def test_tables_are_those_of_the_policy(spark: SparkSession, drives: Program) -> None:
    program = generated_programs.program(1)
    with pytest.raises(UsageError, match="unknown table `attributes`"):
        read_state(spark, {"tables": {"attributes": frames(spark, ROWS)["attributes"]}}, program)
    message = "the build of a state in Spark does not support policies with flat ids"
    with pytest.raises(UnsupportedError, match=message):
        build(spark, frames(spark, ROWS), drives, "built")
    listed = spark.createDataFrame([("drive:d",)], "entity string")
    sources = {"tables": frames(spark, {"members": ROWS["members"]}), "entities": listed}
    assert read_state(spark, sources, drives).sources.entities is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "features",
    [
        pytest.param(("nested", "hierarchy"), marks=pytest.mark.long),
        pytest.param(("attributes", "hierarchy"), marks=pytest.mark.long),
        pytest.param(("active", "hierarchy"), marks=pytest.mark.long),
        pytest.param(("below", "nested"), marks=pytest.mark.long),
    ],
    ids="-".join,
)
def test_a_build_is_what_the_packer_makes_and_only_changes_are_built_again(
    spark: SparkSession, features: tuple[str, ...], tmp_path: Path
) -> None:
    program = generated_programs.program(3, *features)
    state, _ = validate(program, from_tables(worlds.state(program, 3).to_tables(), "rows"))
    packed = shard_bundles(program, state)
    built = build(spark, frames_of(spark, state), program, tmp_path)
    assert built_files(built) == packed
    written, listed = (tmp_path / LISTING_FILE).read_bytes(), shard_files(packed)[LISTING_FILE]
    assert strict_loads(written)["people"]["roots"] == strict_loads(listed)["people"]["roots"]
    assert build(spark, frames_of(spark, state), program, tmp_path).unchanged
    removed = "attributes" if state.attributes else "assignments"
    changed = replace(state, **{removed: getattr(state, removed)[1:]})
    again = build(spark, frames_of(spark, changed), program, tmp_path)
    now = shard_bundles(program, changed)
    assert built_files(again) == now
    if removed == "attributes":
        assert set(again.rebuilt) == {key for key in now if key != "people" and now[key] != packed.get(key)}


def built_files(built: Build) -> dict[str, bytes]:
    return {key: Path(built.file(key)).read_bytes() for key in ("people", *built.shards)}
