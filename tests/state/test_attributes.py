"""Rows of `attributes`: what is wrong with them, the values that they give, and the index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privtab.base.source import SourceFile
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.index import index_bytes, index_document
from privtab.state.load import from_tables, load_raw_state, validate
from privtab.state.nodes import State

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }, user: }}
privileges: [SELECT]
attributes:
  user:
    department: text
    badges: {set: [red, blue], from: [state, request]}
    rank: {integer: [0, 9]}
    device: {text: true, from: request}
  entity:
    class: {enum: [public, secret], on: [schema, table]}
    hidden: bool
  request: {mfa: bool}
tables:
  table: {read: SELECT (table) and user.department = sales and schema.class = public}
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("lake.yaml", POLICY))


def checked(program: Program, rows: list[dict[str, Any]]) -> tuple[State, tuple[StateFinding, ...]]:
    """The same by rows and by columns."""
    found = []
    for large in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(raw, "LARGE", large)
            found.append(validate(program, from_tables({"attributes": rows}, "state.json")))
    assert found[0][1] == found[1][1]
    assert tuple(found[0][0].attributes) == tuple(found[1][0].attributes)
    return found[1]


GOOD: list[dict[str, Any]] = [
    {"user": "ann", "attribute": "department", "value": "sales"},
    {"user": "user:ann", "attribute": "rank", "value": 3},
    {"user": "ann", "attribute": "badges", "value": "red"},
    {"user": "ann", "attribute": "badges", "value": "blue"},
    {"user": "ben", "attribute": "rank", "value": "0"},
    {"entity": "schema:c/s", "attribute": "class", "value": "public"},
    {"entity": "schema:c/s", "attribute": "hidden", "value": True},
    {"entity": "user:c/ann", "attribute": "hidden", "value": "false"},
]


def test_values_of_users_and_entities(program: Program) -> None:
    state, findings = checked(program, GOOD)
    assert findings == ()
    found = index_document(program, state)
    assert found["user_attributes"] == {
        "ann": {"badges": ["blue", "red"], "department": "sales", "rank": 3},
        "ben": {"rank": 0},
    }
    assert found["entity_attributes"] == {
        "schema:c/s": {"class": "public", "hidden": True},
        "user:c/ann": {"hidden": False},
    }
    small = validate(program, from_tables({"attributes": GOOD}, "state.json"))[0]
    assert json.loads(index_bytes(program, small)[1]) == found
    assert index_bytes(program, small) == index_bytes(program, state)
    again, _ = checked(program, state.to_tables()["attributes"])
    assert again.attributes == state.attributes


def test_yaml_and_csv_are_read_alike(program: Program, tmp_path: Path) -> None:
    (tmp_path / "state.yaml").write_text(
        "attributes:\n  - {entity: 'schema:c/s', attribute: hidden, value: True}\n"
        "  - {user: ann, attribute: rank, value: 3}\n",
        encoding="utf-8",
    )
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "attributes.csv").write_text(
        "user,entity,attribute,value\n,schema:c/s,hidden,true\nann,,rank,3\n", encoding="utf-8"
    )
    from_yaml, from_csv = (validate(program, load_raw_state(path)) for path in (tmp_path / "state.yaml", folder))
    assert from_yaml == from_csv
    assert from_yaml[1] == ()
    assert len(from_yaml[0].attributes) == 2


WRONG = [
    ({"user": "ann", "attribute": "departement", "value": "x"}, "S187", "unknown attribute `departement` of users"),
    ({"user": "ann", "attribute": "class", "value": "public"}, "S187", "unknown attribute `class` of users"),
    ({"user": "ann", "attribute": "device", "value": "x"}, "S187", "requests give `device` of users"),
    ({"user": "ann", "attribute": "mfa", "value": "true"}, "S187", "unknown attribute `mfa` of users"),
    ({"entity": "catalog:c", "attribute": "class", "value": "public"}, "S187", "a `catalog` has no attribute `class`"),
    ({"entity": "table:c/s/t", "attribute": "class", "value": "Public"}, "S188", "`Public` is no value of `class`"),
    ({"entity": "table:c/s/t", "attribute": "hidden", "value": "yes"}, "S188", "`yes` is no value of `hidden`"),
    ({"user": "ann", "attribute": "rank", "value": "10"}, "S188", "`10` is no value of `rank`"),
    ({"user": "ann", "attribute": "rank", "value": "03"}, "S188", "`03` is no value of `rank`"),
    ({"user": "ann", "attribute": "rank", "value": "3.0"}, "S188", "`3.0` is no value of `rank`"),
    ({"user": "ann", "attribute": "badges", "value": "green"}, "S188", "`green` is no value of `badges`"),
    ({"user": "ann", "attribute": "department", "value": True}, None, None),
    ({"user": "group:hr", "attribute": "rank", "value": "3"}, "S122", "`group:hr` is a group"),
    ({"attribute": "rank", "value": "3"}, "S190", "the row names neither a user nor an entity"),
    ({"user": "a", "entity": "catalog:c", "attribute": "hidden", "value": "true"}, "S190", "the row names a user and"),
    ({"entity": "table:c/s", "attribute": "class", "value": "public"}, "S112", "wrong depth"),
    ({"user": "ann", "attribute": "rank"}, "S102", "column `value` is missing in `attributes`"),
    ({"user": "ann", "attribute": "department", "value": ""}, "S105", "`value` is empty"),
    ({"user": "ann", "attribute": "rank", "value": 3.5}, "S104", "`value` is a number"),
    ({"user": "ann", "attribute": "department", "value": "a\nb"}, "S116", "the value of `department` holds the"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "code", "message"), WRONG, ids=lambda value: str(value)[:60])
def test_wrong_rows_are_findings(program: Program, row: dict[str, Any], code: str | None, message: str) -> None:
    good = {"user": "cem", "attribute": "rank", "value": "3"}
    state, findings = checked(program, [row, good])
    if code is None:
        assert (len(state.attributes), findings) == (2, ())
        return
    assert [(f.code, f.place.row, f.message[: len(message)]) for f in findings] == [(code, 1, message)]
    assert [row.user for row in state.attributes] == ["cem"]


def test_two_values_are_none(program: Program) -> None:
    rows = [
        {"user": "ann", "attribute": "rank", "value": "3"},
        {"user": "ann", "attribute": "rank", "value": "4"},
        {"user": "ben", "attribute": "rank", "value": "4"},
        {"user": "ben", "attribute": "rank", "value": "4"},
    ]
    state, findings = checked(program, rows)
    assert [(f.code, f.place.row, f.severity) for f in findings] == [
        ("S189", 1, "error"),
        ("S189", 2, "error"),
        ("S160", 4, "warning"),
    ]
    assert "`rank` of `ann` has the values `3` and `4`" in findings[0].message
    assert [(row.user, row.value) for row in state.attributes] == [("ben", "4")]


def test_policies_without_such_attributes_have_the_same_index() -> None:
    text = POLICY.partition("attributes:")[0] + "tables: {table: {read: SELECT (table)}}\n"
    plain = load_program(SourceFile.of("lake.yaml", text))
    state, findings = checked(plain, GOOD[:1])
    assert [f.code for f in findings] == ["S187"]
    assert index_document(plain, state).keys().isdisjoint({"user_attributes", "entity_attributes"})
