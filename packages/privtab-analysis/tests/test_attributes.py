"""Attributes that the state holds, in questions about users and entities and in changes that turn a denial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privtab.base import Entity, GivenAttributes, Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import AttributeRow, Grant, State
from privtab_analysis.explanation import explain
from privtab_analysis.permissions import what_can
from privtab_analysis.principals import who_can
from privtab_analysis.turns import remedies

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [SELECT]
semantics: {inheritance: down}
attributes:
  user: {department: text, rank: {integer: [0, 9], from: [state, request]}}
  entity: {department: {text: true, on: [schema, table]}, class: {enum: [public, secret], on: [schema]}}
tables:
  table:
    read: SELECT (table) and user.department = entity.department
    browse: schema.class = public
    copy: {with: {to: table}, requires: SELECT (table) and to.department = entity.department}
    rank: user.rank > 3
"""
STATE = State(
    grants=tuple(
        Grant(grantee=f"user:{user}", effect="allow", privilege="SELECT", entity=Entity("catalog", "c"))
        for user in ("ann", "ben", "cem")
    ),
    attributes=(
        AttributeRow(user="ann", attribute="department", value="hr"),
        AttributeRow(user="ben", attribute="department", value="it"),
        AttributeRow(user="dan", attribute="department", value="hr"),
        AttributeRow(user="dan", attribute="rank", value="4"),
        AttributeRow(entity=Entity("table", "c/s/t"), attribute="department", value="hr"),
        AttributeRow(entity=Entity("table", "c/s/u"), attribute="department", value="hr"),
        AttributeRow(entity=Entity("table", "c/r/t"), attribute="department", value="it"),
        AttributeRow(entity=Entity("schema", "c/s"), attribute="class", value="public"),
    ),
)


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("lake.yaml", POLICY))


def request_for(action: str, table: str = "c/s/t", user: str = "ann") -> Request:
    return Request(user=user, action=action, resource=Entity("table", table))


def test_who_can(program: Program) -> None:
    reference = Reference(program, STATE)
    assert who_can(reference, STATE, request_for("read")).users == ("ann",)
    assert who_can(reference, STATE, request_for("read", "c/r/t")).users == ("ben",)
    assert who_can(reference, STATE, request_for("read", "c/r/u")).users == ()
    assert who_can(reference, STATE, request_for("browse")).anyone
    assert not who_can(reference, STATE, request_for("browse", "c/r/t")).anyone
    # What a request says of its own user is not said of others.
    request = Request(
        user="ann", action="rank", resource=Entity("table", "c/s/t"), attributes=GivenAttributes(user={"rank": 9})
    )
    assert who_can(reference, STATE, request).users == ("dan",)
    assert [e.atom for e in who_can(reference, STATE, request_for("read")).through("ann")] == [
        "SELECT (table:c/s/t)",
        "user.department = department (table:c/s/t)",
    ]


def test_what_can(program: Program) -> None:
    reference = Reference(program, STATE)
    may = {(m.operation, m.resource.id, m.choices) for m in what_can(reference, STATE, "ann").allowed}
    assert may == {
        ("read", "c/s/t", None),
        ("read", "c/s/u", None),
        ("browse", "c/s/t", None),
        ("browse", "c/s/u", None),
        ("copy", "c/s/t", 2),
        ("copy", "c/s/u", 2),
        ("copy", "c/r/t", 1),
    }


def test_changes_that_turn_a_denial_do_not_change_attributes(program: Program) -> None:
    reference = Reference(program, STATE)
    assert remedies(reference, STATE, request_for("read", user="dan")).sets
    assert not remedies(reference, STATE, request_for("read", "c/r/t", user="ann")).sets


def test_explain_says_where_values_come_from(program: Program) -> None:
    reference = Reference(program, STATE)

    def steps(request: Request) -> list[list[str]]:
        [parts] = explain(reference, request, STATE).sets
        return [[step.text for step in chain] for part in parts for chain in part.because if "." in part.atom]

    assert steps(request_for("read")) == [["department of ann is hr", "department of table:c/s/t is hr"]]
    assert steps(request_for("rank", user="dan")) == [["rank of dan is 4"]]
    given = GivenAttributes(user={"rank": 9})
    assert steps(replace(request_for("rank", user="dan"), attributes=given)) == [
        ["the request says that user.rank is 9"]
    ]
