"""Policies that arrays and joins do not support: executors decide by the index of the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import UnsupportedError
from privtab.pipeline import load_program
from privtab.spark import decide, each_batch, entitlements, plan, register_function, require, user, visible
from privtab.spark.state import read_state
from privtab.state.load import load
from privtab.state.nodes import State
from privtab.state.validate import validate

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {paper:}, ticket: {comment:}}}
types: {folder: {nested: true}, ticket: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
attributes: {user: {staff: {bool: true, from: state}}}
tables:
  folder: {list: READ (folder)}
  paper: {read: READ (paper)}
  ticket: {read: READ (ticket), edit: READ (ticket) and user.staff}
  comment: {read: READ (comment)}
"""
STATE = """
entities:
  - {entity: "ticket:t1", parent: "drive:d"}
attributes:
  - {user: ann, attribute: staff, value: "true"}
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "folder:d/a"}
  - {grantee: "user:ann", effect: deny, privilege: READ, entity: "folder:d/a/b/c"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "ticket:t1"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "drive:d"}
"""
ROWS = (
    ("ann", "list", "folder:d/a", True, None),
    ("ann", "list", "folder:d/a/b", True, None),
    ("ann", "list", "folder:d/a/b/c/d", False, "not granted"),
    ("ann", "list", "folder:d", False, "wrong depth"),
    ("ann", "list", "folder:d//a", False, "malformed path"),
    ("ann", "read", "paper:d/a/b/p", True, None),
    ("ann", "read", "paper:d/p", False, "wrong depth"),
    ("ann", "read", "ticket:t1", True, None),
    ("ann", "read", "ticket:t2", False, "not granted"),
    ("ann", "read", "ticket:d/t1", False, "malformed path"),
    ("ann", "read", "comment:t1/c", True, None),
    ("ann", "edit", "ticket:t1", True, None),
    ("ben", "edit", "ticket:t1", False, "not granted"),
    ("ben", "read", "ticket:t1", True, None),
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    policy, state = tmp_path / "drives.yaml", tmp_path / "state.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    state.write_text(STATE, encoding="utf-8")
    return str(policy), str(state)


def state_of(files: tuple[str, str]) -> State:
    return validate(load_program(files[0]), load(files[1]))[0]


def columns() -> dict[str, Any]:
    return {"subject": "user", "action": F.col("action"), "resource": "entity"}


def test_executors_decide_by_the_index(spark: SparkSession, files: tuple[str, str]) -> None:
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    assert decision_rows.answer_rows(decide(frame, *files, **columns())) == [row[3:] for row in ROWS]
    choice = plan(frame, *files, **columns())
    assert choice.plan == "kernel"
    assert choice.why == "joins do not support a type that nests and attributes and flat ids"
    assert (choice.figures["attributes"], choice.figures["entities"]) == (1, 1)
    assert choice.steps[1].endswith("decide each distinct request by itself")
    assert plan(frame, files[0], state_of(files), **columns()).why == choice.why


@pytest.mark.slow
def test_the_other_functions_decide_so_too(spark: SparkSession, files: tuple[str, str]) -> None:
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    papers = frame.where("entity like 'paper:%' or entity like 'folder:%'")
    seen = visible(papers, *files, subject=user("ann"), resource="entity", action=F.col("action"))
    assert {row["entity"] for row in seen.collect()} == {"folder:d/a", "folder:d/a/b", "paper:d/a/b/p"}
    register_function(spark, *files, name="may_below")
    allowed = frame.select("n", F.expr("may_below(user, action, entity)").alias("may")).orderBy("n").collect()
    assert [row["may"] for row in allowed] == [row[3] for row in ROWS]
    assert require(*files, "ann", "edit", "ticket:t1").allowed
    batches: list[list[Any]] = []
    decide_batch = each_batch(
        lambda decided, _: batches.append(decision_rows.answer_rows(decided)),
        files[0], lambda _: state_of(files), **columns(),
    )  # fmt: skip
    decide_batch(frame, 0)
    assert batches == [[row[3:] for row in ROWS]]


@pytest.mark.slow
def test_what_needs_tables_or_arrays_refuses(spark: SparkSession, files: tuple[str, str]) -> None:
    with pytest.raises(UnsupportedError, match="entitlements are not supported"):
        entitlements(*files, ["drive:d"], spark=spark)
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    with pytest.raises(UnsupportedError, match=r'joins are not supported .* nests, .*: take `plan="kernel"`'):
        decide(frame, *files, **columns(), plan="joins")
    with pytest.raises(UnsupportedError, match=r"tables of Spark are not supported .*: give its rows, their path"):
        read_state(spark, files[1], files[0])
