"""A column of active roles: each row is decided by the roles that it names, and what cannot decide it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import Entity, InvalidRequest, Request, UsageError
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_spark import SparkState, decide

POLICY = """
{privtab: 1, system: office, version: '1', entities: {site: {desk:}}, privileges: [USE],
 semantics: {inheritance: down, deny: overrides, groups: [state, request]SEMANTICS},
 tables: {desk: {use: USE (desk)}}}
"""
STATE = State(
    assignments=(
        Assignment(principal="user:ann", role="clerk", scope=None),
        Assignment(principal="group:staff", role="keeper", scope=Entity("site", "s")),
        Assignment(principal="user:ann", role="barred", scope=None),
    ),
    grants=(
        Grant(grantee="role:clerk", effect="allow", privilege="USE", entity=Entity("site", "s")),
        Grant(grantee="role:keeper", effect="allow", privilege="USE", entity=Entity("site", "s")),
        Grant(grantee="group:staff", effect="allow", privilege="USE", entity=Entity("desk", "s/staff")),
        Grant(grantee="role:barred", effect="deny", privilege="USE", entity=Entity("desk", "s/barred")),
    ),
)
ROWS: list[tuple[str, str, list[str | None] | None, list[str]]] = [
    ("ann", "s/1", ["clerk"], []),
    ("ann", "s/1", ["role:clerk", "barred"], []),
    ("ann", "s/1", [], []),
    ("ann", "s/1", ["barred"], []),
    ("ann", "s/barred", ["clerk"], []),
    ("ann", "s/1", ["boss"], []),
    ("ann", "s/1", ["keeper"], ["staff"]),
    ("ann", "s/1", ["keeper"], []),
    ("ben", "s/staff", [], ["staff"]),
    ("ann", "s/1", None, []),
    ("ann", "s/1", [None], []),
    ("ann", "s/1", [""], []),
]


def policy(folder: Path, semantics: str) -> str:
    path = folder / "office.yaml"
    path.write_text(POLICY.replace("SEMANTICS", semantics), encoding="utf-8")
    return str(path)


def decided(spark: SparkSession, path: str, **arguments: Any) -> list[Any]:
    frame = decision_rows.frame(spark, ROWS, "user string, desk string, active array<string>, groups array<string>")
    columns: dict[str, Any] = {"active_roles": "active", "groups": "groups", **arguments}
    rows = decide(frame, path, STATE, subject="user", action="use", resource=("desk", "desk"), **columns)
    return decision_rows.answer_rows(rows)


@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_each_row_is_decided_by_its_own_roles(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    path = policy(tmp_path, ", active_roles: request")
    reference = Reference(load_program(path), STATE)
    expected: list[Any] = []
    for user, desk, active, groups in ROWS:
        if active is None or not all(active):
            expected.append((False, "null"))
            continue
        request = Request(
            user=user,
            action="use",
            resource=Entity("desk", desk),
            active_roles=tuple(map(str, active)),
            groups=tuple(groups),
        )
        allowed = reference.decide(request).allowed
        expected.append((allowed, None if allowed else "not granted"))
    assert decided(spark, path, plan=plan) == expected
    assert [allowed for allowed, _ in expected] == [row in (0, 1, 6, 8) for row in range(len(ROWS))]


@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_a_role_brings_those_that_it_holds(spark: SparkSession, tmp_path: Path, plan: str) -> None:
    path = policy(tmp_path, ", active_roles: request, hierarchy: [roles]")
    state = replace(
        STATE,
        assignments=(
            Assignment(principal="user:ann", role="head", scope=None),
            Assignment(principal="role:head", role="clerk", scope=None),
            Assignment(principal="user:ann", role="keeper", scope=Entity("site", "t")),
        ),
    )
    rows = [("ann", "s/1", ["head"]), ("ann", "s/1", ["clerk"]), ("ann", "s/1", ["keeper"]), ("ann", "t/1", ["head"])]
    frame = decision_rows.frame(spark, rows, "user string, desk string, active array<string>")
    reference = Reference(load_program(path), state)
    expected = [
        reference.decide(
            Request(user=user, action="use", resource=Entity("desk", desk), active_roles=tuple(active))
        ).allowed
        for user, desk, active in rows
    ]
    tables = SparkState.from_state(spark, load_program(path), state)
    for given in (state, tables):
        asked = decide(
            frame,
            path,
            given,
            subject="user",
            action="use",
            resource=("desk", "desk"),
            active_roles="active",
            plan=plan,
        )
        allowed = [allowed for allowed, _ in decision_rows.answer_rows(asked)]
        assert allowed == expected == [True, True, False, False]


def test_columns_that_name_no_active_roles_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = policy(tmp_path, ", active_roles: request")
    with pytest.raises(UsageError, match="active_roles is a column of type"):
        decided(spark, path, active_roles=F.col("user"))
    plain = policy(tmp_path, "")
    with pytest.raises(InvalidRequest, match="does not let requests name active roles"):
        decided(spark, plain)
