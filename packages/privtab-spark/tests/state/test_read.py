"""Rows in Spark get the findings that rows of files get, and the same rows are good."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from privtab.base import FileError, StateInvalid, UsageError
from privtab.ir import Program
from privtab.state import TABLE_COLUMNS, from_tables, validate
from privtab_spark.state import read_state, state_tables
from privtab_spark.state.read import read_written
from privtab_spark.state.schemas import TABLES

ODD = (
    "\x00",
    "\t",
    "\x7f",
    "\x85",
    "\x9f",
    "\u2028",
    "\u2029",
    "\ufffe",
    "\u202e",
    "\u200d",
    "e\u0301",
    "\U0002070e",
    "\U000e0041",
    "x" * 65_536,
)
ENTITIES = (
    "lake:l", "lake:l", "schema:l/s", "table:l/s/t", "settings:l/s", "depot:d", "crate:d/1", "table:l/s/a%2Fb", "table:l/%zz/t",
    "lake:", "lake", ":x", "tabel:l/s/t", "table:l/s", "table:l//t", "table:l/s/t ", " table:l/s/t", "table:l/s/é", "lake:ünï",
    "table:l/s/ t", "table:l/s/\u0430nn", "lake:a\tb", "settings:l/s/x", "lake:l\n", "user:l/ann", "crate:d/1\u2003", "lake:日本", "",
    "table:l/s/*", "table:l/?/t", "lake:%", "table:l/*/a%zz", "lake:%2A", "table:l/s/a*", "*", "*:l",
    *(f"lake:l{odd}m" for odd in ODD),
)  # fmt: skip
PRINCIPALS = (
    "user:ann", "user:ann", "group:hr", "role:clerk", "ann", "User:ann", "user:", "usr:x", "user:a b", "user:a ", "group: x",
    "role:a:b", "user:a\nb", "", "user:é", "role:keper", "user:user:x", ":x", "USER:ann", "*", "user:*", "group:%", "role:??",
    "user:%2A", "user:a*", "user:Role:x", "group:role:x", "group:group:x", "user:%",
    *(f"user:a{odd}b" for odd in ODD),
)  # fmt: skip
PRIVILEGES = (
    "SELECT",
    "SELECT",
    "READ",
    "ALL",
    "EVERYTHING",
    "MANAGE",
    "OLD",
    "CREATE_TABLE",
    "SELET",
    "select",
    "",
    "SELECT ",
)
EFFECTS = ("allow", "allow", "deny", "ALLOW", "Deny", "grant", "", "allow ")
ROLES = (
    "keeper",
    "keper",
    "clerk",
    "schema_administrator",
    "*",
    "role:keeper",
    "user:ann",
    "Keeper",
    "visitor",
    "x ",
    "",
)
CELLS = {
    "user": PRINCIPALS, "of": ENTITIES, "group": ("hr", "group:hr", *PRINCIPALS), "principal": PRINCIPALS, "role": ROLES,
    "scope": (None, None, *ENTITIES), "grantee": PRINCIPALS, "effect": EFFECTS, "privilege": PRIVILEGES, "entity": ENTITIES,
    "owner": PRINCIPALS,
}  # fmt: skip
Rows = dict[str, list[dict[str, str | None]]]


def messy_rows(seed: int, count: int) -> Rows:
    """Rows that are wrong in every way, and some that are right."""
    rnd = random.Random(seed)

    def cell(column: str) -> str | None:
        return None if rnd.random() < 0.03 else rnd.choice(CELLS[column])

    found: Rows = {t: [{c: cell(c) for c in TABLE_COLUMNS[t].names} for _ in range(count)] for t in TABLES}
    for table in TABLES:
        found[table] += found[table][:5]
    return found


def counted(rows: list[tuple[str, str, str, str | None, str]]) -> dict[tuple[str, ...], int]:
    return dict(Counter(tuple(str(part) for part in row) for row in rows))


@pytest.mark.slow
@pytest.mark.parametrize("lean", [False, pytest.param(True, marks=pytest.mark.long)])
def test_messy_rows_are_judged_as_rows_of_files_are(spark: SparkSession, shop: Program, lean: bool) -> None:
    from dataclasses import replace

    from privtab.ir.declarations import Semantics

    program = replace(shop, semantics=Semantics(), rules={}) if lean else shop
    rows = messy_rows(lean, 400)
    state, findings = validate(program, from_tables(rows, "rows"))
    frames = {
        t: spark.createDataFrame(
            [tuple(r.values()) for r in rs], ", ".join(f"`{c}` string" for c in TABLE_COLUMNS[t].names)
        )
        for t, rs in rows.items()
    }
    read = read_state(spark, frames, program)
    good = {table: {tuple(row) for row in read.good(table).collect()} for table in TABLES}
    assert good["grants"] == {(g.grantee, g.effect, g.privilege, g.entity.type, g.entity.id) for g in state.grants}
    assert good["members"] == {(user, e.type, e.id) for user, e in state.members}
    assert good["owners"] == {(e.type, e.id, owner) for e, owner in state.owners}
    assert good["memberships"] == set(state.memberships)
    assert good["service_admins"] == {(user,) for user in state.service_admins}
    assert good["assignments"] == {
        (a.principal, a.role, a.scope.type if a.scope else None, a.scope.id if a.scope else None)
        for a in state.assignments
    }

    # Words about several rows differ: readers of files know the numbers of rows, and which of them came first.
    several = {"S118", "S152", "S160", "S164", "S165"}
    expected = [
        (f.place.table, f.code, f.message, f.help, json.dumps(dict(f.row), sort_keys=True))
        for f in findings
        if f.code not in several
    ]
    ours = read.findings().collect()
    # What files' rows say of a null or empty cell is in their findings' rows; here such cells are left out.
    found = Counter[tuple[str, ...]]()
    for row in ours:
        if row.code not in several and row.code != "S163":
            cells = json.loads(row.row)
            found[row.table, row.code, row.message, str(row.help), json.dumps(cells, sort_keys=True)] += row.rows
    trimmed = Counter[tuple[str, ...]]()
    for table, code, message, help_, cells in expected:
        plain = {name: value for name, value in json.loads(cells).items() if value not in {None, ""}}
        trimmed[table, code, message, str(help_), json.dumps(plain, sort_keys=True)] += 1
    assert found == trimmed

    def rows_with(code: str) -> set[tuple[str, int]]:
        return set(Counter(f.place.table for f in findings if f.code == code).items())

    repeated = Counter[str]()
    for row in ours:
        if row.code == "S160":
            repeated[row.table] += row.rows
    assert set(repeated.items()) == rows_with("S160")
    # Each repetition has the warning here, only the first row there.
    assert {(r.table, r.message) for r in ours if r.code == "S118"} == {
        (f.place.table, f.message) for f in findings if f.code == "S118"
    }
    assert {(r.message, r.help) for r in ours if r.code == "S152"} == {
        (f.message, f.help) for f in findings if f.code == "S152"
    }


@pytest.mark.slow
def test_good_rows_findings_and_counts_are_written_and_read_again(
    spark: SparkSession, shop: Program, tmp_path: Path
) -> None:
    grants = spark.createDataFrame(
        [("user:ann", "allow", "ALL", "schema:l/s"), ("user:ann", "deny", "READ", "schema:l/s"), ("ann", "deny", "READ", "lake:l")],
        "grantee string, effect string, privilege string, entity string",
    )  # fmt: skip
    read = read_state(spark, {"grants": grants}, shop)
    with pytest.raises(FileError, match="no tables of a state"):
        read_written(spark, tmp_path, shop)
    manifest = read.write(tmp_path)
    assert manifest["rows"]["grants"] == 2
    assert manifest["findings"] == [
        ["grants", "S120", "error", 1], ["grants", "S161", "warning", 1], ["grants", "S163", "warning", 1],
    ]  # fmt: skip
    again = read.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"_MANIFEST.json", again["data"]}
    with pytest.raises(StateInvalid, match="may include a denial"):
        state_tables(spark, shop, tmp_path)
    with pytest.raises(UsageError, match="with other sets"):
        read_written(spark, tmp_path, replace(shop, sets={}))
    with pytest.raises(UsageError, match="for `shop`, but the policy is for `dock`"):
        read_written(spark, tmp_path, replace(shop, system="dock"))
    read_again = read_written(spark, tmp_path, shop, allow_partial=True)
    assert read_again.counts()["grants"] == read_again.tables["grants"].count() == 3
    assert [row.code for row in read_again.quarantined.collect()] == ["S120"]


@pytest.mark.slow
def test_other_types_than_text(spark: SparkSession, shop: Program) -> None:
    members = spark.sql("select 7 as user, 'lake:l' as of union all select null, 'lake:l'")
    admins = spark.sql("select true as user")
    read = read_state(spark, {"members": members, "service_admins": admins}, shop)
    assert [tuple(row) for row in read.good("members").collect()] == [("7", "lake", "l")]
    assert [(r.table, r.code, r.message) for r in read.findings().collect()] == [
        ("members", "S103", "`user` is null"), ("service_admins", "S104", "`user` is a boolean, not text"),
    ]  # fmt: skip
