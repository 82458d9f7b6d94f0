"""Columns of attributes: both plans compare the same values, and give the same reasons for values that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from spark_plans import WAYS, in_every_way

from privtab.base import Entity
from privtab.bundle import state_bundle
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import AttributeRow, State
from privtab_spark import Limits, decide, plan

ODD = ("it's", "back\\slash", "${spark.app.name}", "grün", "%x", "")
ROOMS = ", ".join(f'"{text}"' for text in ODD)
POLICY = f"""
privtab: 1
system: desk
version: '1'
entities: {{site: {{ticket: , note: }}}}
privileges: [READ]
attributes:
  user: {{team: {{text: true, from: [state, request]}}, staff: {{bool: true, from: state}}}}
  entity:
    team: {{text: true, from: [state, request]}}
    color: {{enum: [red, blue], on: [ticket, note], from: [state, request]}}
    rank: {{integer: [-5, 5], on: [site], from: state}}
    tags: {{set: [red, blue], on: [note], from: state}}
  request: {{hour: {{integer: [0, 23]}}, tags: {{set: [red, blue]}}, room: text}}
tables:
  ticket:
    look: user.team = entity.team
    paint: entity.color in {{red}} and request.hour < 12
    climb: site.rank > -3 and user.staff
    move: {{with: {{to: [ticket, note]}}, requires: entity.team = to.team}}
    name: {json.dumps(f"request.room in {{{ROOMS}}}", ensure_ascii=False)}
  note:
    read: entity.color in request.tags
    sort: entity.color in entity.tags
"""


def value(name: str, text: str, user: str | None = None, entity: str | None = None) -> AttributeRow:
    return AttributeRow(user=user, entity=entity and Entity.parse(entity), attribute=name, value=text)  # type: ignore[arg-type]


STATE = State(
    attributes=(
        value("team", "one", user="ann"),
        value("team", ODD[0], user="ben"),
        value("staff", "true", user="ann"),
        value("staff", "false", user="ben"),
        value("team", "one", entity="ticket:s/1"),
        value("team", ODD[0], entity="note:s/1"),
        value("color", "red", entity="ticket:s/1"),
        value("color", "blue", entity="note:s/1"),
        value("rank", "-3", entity="site:s"),
        value("rank", "5", entity="site:t"),
        value("tags", "red", entity="note:s/1"),
        value("tags", "blue", entity="note:s/1"),
    )
)
COLUMNS = (
    "user string, action string, entity string, to string, user_team string, team string, color string, to_team string, hour int, "
    "tags array<string>, room string"
)
ATTRIBUTES: dict[str, Any] = {
    "user": {"team": "user_team"},
    "entity": {"team": "team", "color": "color"},
    "with": {"to": {"team": "to_team"}},
    "request": {"hour": "hour", "tags": "tags", "room": "room"},
}
NO, INVALID = "not granted", "invalid attribute"
ROWS: list[tuple[tuple[Any, ...], dict[str, Any], str | None]] = [
    # user, action, entity; what else the row gives; the reason
    (("ann", "look", "ticket:s/1"), {}, None),
    (("ben", "look", "ticket:s/1"), {}, NO),
    (("cy", "look", "ticket:s/1"), {}, NO),
    (("cy", "look", "ticket:s/2"), {}, NO),
    (("cy", "look", "ticket:s/1"), {"user_team": "one"}, None),
    (("ann", "look", "ticket:s/1"), {"user_team": "two"}, NO),
    (("ann", "look", "ticket:s/2"), {"team": "one"}, None),
    (("ann", "look", "ticket:s/1"), {"team": "One"}, NO),
    (("ann", "look", "ticket:s/1"), {"team": "x" * 65_537}, INVALID),
    (("ann", "look", "ticket:s/1"), {"team": "o\nne"}, INVALID),
    (("cy", "look", "ticket:s/1"), {"user_team": "o\u2028ne"}, INVALID),
    (("ann", "paint", "ticket:s/1"), {"hour": 11}, None),
    (("ann", "paint", "ticket:s/1"), {}, NO),
    (("ann", "paint", "ticket:s/1"), {"hour": 24}, INVALID),
    (("ann", "paint", "ticket:s/1"), {"hour": 3, "color": "blue"}, NO),
    (("ann", "paint", "ticket:s/2"), {"hour": 3, "color": "red"}, None),
    (("ann", "paint", "ticket:s/1"), {"hour": 3, "color": "green"}, INVALID),
    (("ann", "climb", "ticket:s/1"), {}, NO),
    (("ann", "climb", "ticket:t/1"), {}, None),
    (("ben", "climb", "ticket:t/1"), {}, NO),
    (("ann", "climb", "ticket:t/1"), {"hour": -1}, INVALID),
    (("ann", "move", "ticket:s/2"), {"to": "ticket:s/1", "team": "one"}, None),
    (("ann", "move", "ticket:s/2"), {"to": "ticket:s/1", "team": "two"}, NO),
    (("ann", "move", "ticket:s/2"), {"to": "note:s/1", "team": ODD[0]}, None),
    (("ann", "move", "ticket:s/2"), {"to": "note:s/2", "team": "a", "to_team": "a"}, None),
    (("ann", "move", "ticket:s/2"), {"to": "ticket:s/2", "team": "a"}, None),
    (("ann", "move", "ticket:s/2"), {"to": "ticket:s/2", "team": "a", "to_team": "b"}, INVALID),
    (("ann", "move", "ticket:s/2"), {"to": "note:s/2", "team": "a", "to_team": "b"}, NO),
    (("ann", "name", "ticket:s/1"), {"room": "its"}, NO),
    *((("ann", "name", "ticket:s/1"), {"room": text}, None) for text in ODD),
    (("ann", "read", "note:s/1"), {"tags": ["blue"]}, None),
    (("ann", "read", "note:s/1"), {"tags": ["red"]}, NO),
    (("ann", "read", "note:s/1"), {"tags": []}, NO),
    (("ann", "read", "note:s/1"), {"tags": ["blue", None]}, INVALID),
    (("ann", "read", "note:s/1"), {"tags": ["blue", "green"]}, INVALID),
    (("ann", "read", "note:s/2"), {"tags": ["blue"]}, NO),
    (("ann", "sort", "note:s/1"), {}, None),
    (("ann", "sort", "note:s/2"), {"color": "red"}, NO),
    (("ann", "sort", "note:s//"), {"color": "green"}, "malformed path"),
]
EXPECTED = [(reason is None, reason) for _, _, reason in ROWS]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    path = tmp_path / "desk.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_program(path)


def arguments() -> dict[str, Any]:
    return {
        "subject": "user",
        "action": F.col("action"),
        "resource": "entity",
        "with_": {"to": "to"},
        "attributes": ATTRIBUTES,
    }


def rows() -> list[tuple[Any, ...]]:
    names = [column.split()[0] for column in COLUMNS.split(", ")][3:]
    return [(*request, *(more.get(name) for name in names)) for request, more, _ in ROWS]


@pytest.mark.slow
@in_every_way
def test_rows_are_decided_by_what_they_give_and_the_state_has(spark: SparkSession, program: Program, way: str) -> None:
    frame = decision_rows.frame(spark, rows(), COLUMNS)
    answers = decision_rows.answer_rows(decide(frame, program, STATE, **arguments(), **WAYS[way]))
    assert answers == EXPECTED


@pytest.mark.long
def test_values_of_bundles_and_constants(spark: SparkSession, program: Program, tmp_path: Path) -> None:
    frame = decision_rows.frame(spark, [("ann",), ("ben",)], "user string")
    asked: dict[str, Any] = {"subject": "user", "plan": "portions", "resource": "entity"}
    for state, expected in ((STATE, [True, False]), (State(), [False, False])):
        bundle = tmp_path / "state.tar.gz"
        bundle.write_bytes(state_bundle(program, state))
        at_ticket = frame.selectExpr("*", "'ticket:t/1' AS entity")
        assert [
            a for a, _ in decision_rows.answer_rows(decide(at_ticket, program, str(bundle), action="climb", **asked))
        ] == expected
    at_note = frame.selectExpr("*", "'note:s/1' AS entity")
    for tags, allowed in ((["blue"], True), (["red"], False), ([], False)):
        given = {"request": {"tags": tags}}
        answers = decision_rows.answer_rows(decide(at_note, program, STATE, action="read", attributes=given, **asked))
        assert [answer for answer, _ in answers] == [allowed] * 2


@pytest.mark.slow
def test_the_size_of_the_state_decides(spark: SparkSession, program: Program) -> None:
    frame = decision_rows.frame(spark, rows(), COLUMNS)
    small = plan(frame, program, STATE, **arguments())
    assert (small.plan, small.why) == ("kernel", "the state has 12 rows, whose index fits every executor")
    assert small.figures["index, about, in bytes"] > 1_000
    large = plan(frame, program, STATE, **arguments(), limits=Limits(size=1_000))
    assert large.plan == "portions"
    assert "the state's index would take" in large.why
    decided = decide(frame, program, STATE, **arguments(), limits=Limits(size=1_000))
    assert decision_rows.answer_rows(decided) == decision_rows.answer_rows(decide(frame, program, STATE, **arguments()))
