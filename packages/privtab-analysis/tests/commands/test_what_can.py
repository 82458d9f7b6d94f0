from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any


def test_operations_by_entity(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("what-can", "ann", "-p", policy, "-s", state)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == "what user:ann can do"
    found = [line.split() for line in ran.out.splitlines()]
    assert ["s/a", "list", "delete", "[create", "item]"] in found
    assert ["s/a/{x,y}", "read", "move*", "burn", "delete"] in found
    assert "[…] calls that name no item; * with some further object" in ran.out


def test_one_entity(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("what-can", "user:ben", "item:s/b/z", "-p", policy, "-s", state)
    assert "what user:ben can do on item:s/b/z" in ran.out
    assert ran.out.splitlines()[-1].split() == ["s/b/z", "read"]
    nothing = privtab("what-can", "nobody", "item:s/b/z", "-p", policy, "-s", state)
    assert nothing.out.splitlines()[-1] == "0 of 4 operations on 1 entity"


def test_lists_for_programs_and_spreadsheets(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ask = ["what-can", "ann", "item:s/a/x", "-p", policy, "-s", state]
    value = json.loads(privtab(*ask, "--format", "json").out)
    assert value["user"] == "ann"
    assert (value["asked"], value["count"]) == (4, 4)
    move = next(may for may in value["allowed"] if may["operation"] == "move")
    assert move == {
        "operation": "move",
        "resource": "item:s/a/x",
        "unnamed": False,
        "with": {"to": "shelf:s/a"},
        "choices": 1,
    }
    rows = list(csv.DictReader(StringIO(privtab(*ask, "--format", "csv").out)))
    assert [row["operation"] for row in rows] == [may["operation"] for may in value["allowed"]]
    assert rows[1]["with"] == "to=shelf:s/a"


def test_a_limit_says_what_it_leaves_out(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("what-can", "ann", "-p", policy, "-s", state, "--limit", "1")
    assert "more lines; `--limit 0` lists them" in ran.out


def test_an_entity_that_cannot_be_is_bad_usage(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    for entity in ("item", "item:s", "itm:s/a/x"):
        ran = privtab("what-can", "ann", entity, "-p", policy, "-s", state)
        assert (ran.code, ran.out) == (2, ""), entity


LAKE = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {namespace: {table: }}}
types: {namespace: {nested: true}}
privileges: [USE, READ]
semantics: {inheritance: down}
tables:
  table: {load: READ (table) and USE (every namespace), list: {each: READ (table)}}
  namespace: {create: {requires: USE (parent), creates: true}}
"""
GRANTS = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: USE, entity: "catalog:c"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "table:c/a/b/t"}
"""


def test_calls_are_shown_at_the_level_that_contains_what_they_are_about(
    privtab: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    (tmp_path / "state.yaml").write_text(GRANTS, encoding="utf-8")
    ran = privtab("what-can", "ann", "-p", tmp_path / "lake.yaml", "-s", tmp_path / "state.yaml")
    assert [line.split() for line in ran.out.splitlines()[2:] if line and "[…]" not in line] == [
        ["catalog"],
        ["c", "[create", "namespace]"],
        ["namespace"],
        ["c/a", "[create", "namespace]", "[list", "table]"],
        ["c/a/b", "[create", "namespace]", "[list", "table]"],
        ["table"],
        ["c/a/b/t", "load", "list"],
    ]
