"""Columns of attributes: rows that give them are decided as single requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity
from privtab.base.source import SourceFile
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State

POLICY = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {table:}}
privileges: [READ]
semantics: {inheritance: down, groups: [state, request]}
attributes:
  user: {rank: {integer: [0, 3], from: request}}
  entity: {color: {enum: [red, blue], on: [table], from: request}, hidden: {bool: true, on: [catalog], from: state}}
  request: {mfa: bool, tags: {set: [day, night]}}
tables:
  catalog: {open: READ (catalog) and request.mfa}
  table:
    read: READ (table) and request.mfa and user.rank > 1
    copy: {with: {to: table}, requires: READ (table) and to.color = entity.color}
    move: {with: {to: [catalog, table]}, requires: READ (table)}
    plain: READ (table)
"""
STATE = State(grants=(Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("catalog", "c")),))


@pytest.fixture(scope="module")
def batches() -> Batches:
    program = load_program(SourceFile.of("lake.yaml", POLICY))
    return Batches(PythonEngine(policy_artifacts(program).program, Index(index_document(program, STATE))))


def decided(batches: Batches, attributes: Any, *, action: str = "read", rows: int = 1, **more: Any) -> list[Any]:
    answers = batches.decide_columns(
        ["ann"] * rows, ["c/t"] * rows, action=action, type="table", attributes=attributes, **more
    )
    return [answers.reason(row) or bool(answers.allowed[row]) for row in range(rows)]


def test_each_row_gives_its_own_values(batches: Batches) -> None:
    attributes = {
        "request": {"mfa": pa.array([True, True, False, None, True])},
        "user": {"rank": pa.array([2, 1, 2, 2, 7])},
    }
    assert decided(batches, attributes, rows=5) == [True, False, False, False, "invalid attribute"]
    assert decided(batches, attributes, rows=5, action="plain") == [True, True, True, True, "invalid attribute"]
    assert decided(batches, {"request": {"mfa": True}, "user": {"rank": 2}}, rows=2) == [True, True]
    assert decided(batches, None) == [False]
    groups = pa.array([["g"], []])
    assert decided(batches, {"request": {"mfa": True}, "user": {"rank": 2}}, rows=2, groups=groups) == [True, True]


def test_wrong_values_deny_their_rows(batches: Batches) -> None:
    tags = pa.array([["day"], ["dusk"], [None], []])
    answers = decided(batches, {"request": {"tags": tags}}, rows=4, action="plain")
    assert answers == [True, "invalid attribute", "invalid attribute", True]
    assert decided(batches, {"request": {"mfa": "yes"}}) == ["invalid attribute"]
    with pytest.raises(InvalidRequest, match="unknown attribute `mfo` of the request"):
        decided(batches, {"request": {"mfo": True}})
    with pytest.raises(InvalidRequest, match="`hidden` of entities comes from the state"):
        decided(batches, {"entity": {"hidden": True}})


def test_objects_have_the_attributes_of_their_types(batches: Batches) -> None:
    colors = {"entity": {"color": "red"}, "with": {"to": {"color": pa.array(["red", "blue", "red", None])}}}
    to = {"to": ("table", ["c/u"] * 4)}
    assert decided(batches, colors, action="copy", rows=4, with_=to) == [True, False, True, False]
    either = {"to": (["table", "catalog"], ["c/u", "c"])}
    wrong = {"with": {"to": {"color": "green"}}}
    assert decided(batches, wrong, action="move", rows=2, with_=either) == ["invalid attribute", True]
    same = {"entity": {"color": "red"}, "with": {"to": {"color": pa.array(["red", "blue", None])}}}
    answers = decided(batches, same, action="copy", rows=3, with_={"to": ("table", ["c/t"] * 3)})
    assert answers == [True, "invalid attribute", True]
    mixed = batches.decide_columns(
        ["ann", "ann"], ["c", "c/t"], action=["open", "plain"], type=["catalog", "table"],
        attributes={"entity": {"color": "red"}, "request": {"mfa": True}},
    )  # fmt: skip
    assert mixed.allowed.tolist() == [True, True]
    assert not np.any(mixed.reasons)
