"""Policies that arrays do not support: executors decide by the index of the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import InvalidRequest, StateInvalid, UsageError
from privtab.bundle import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import State, load_raw_state, validate
from privtab_spark import (
    certify,
    decide,
    decide_with,
    each_batch,
    entitlements,
    plan,
    register_function,
    require,
    user,
    visible,
)
from privtab_spark.matrix.opening import open_matrix, open_state
from privtab_spark.matrix.question import Question
from privtab_spark.matrix.question import given as given_by
from privtab_spark.policies import open_policy

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {paper:}, ticket: {comment:}}}
types: {folder: {nested: true}, ticket: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
attributes:
  user: {staff: {bool: true, from: state}}
  request: {mfa: bool, hour: {integer: [0, 23]}, tags: {set: [day, night]}, room: text}
  entity: {color: {enum: [red, blue], on: [ticket], from: request}}
tables:
  folder: {list: READ (folder)}
  paper: {read: READ (paper)}
  ticket: {read: READ (ticket), edit: READ (ticket) and user.staff, close: READ (ticket) and request.mfa and request.hour < 12}
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
LAKE = """
{privtab: 1, system: lake, version: '1', entities: {ticket: }, privileges: [READ],
 attributes: {request: {mfa: bool, hour: {integer: [0, 23]}, tags: {set: [day, night]}}},
 tables: {ticket: {read: READ (ticket) and request.mfa}}}
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
    return validate(load_program(files[0]), load_raw_state(files[1]))[0]


def columns() -> dict[str, Any]:
    return {"subject": "user", "action": F.col("action"), "resource": "entity"}


def test_executors_decide_by_the_index(spark: SparkSession, files: tuple[str, str]) -> None:
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    assert decision_rows.answer_rows(decide(frame, *files, **columns())) == [row[3:] for row in ROWS]
    choice = plan(frame, *files, **columns())
    assert choice.plan == "kernel"
    assert choice.why == "the state has 6 rows, whose index fits every executor"
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
def test_arguments_of_the_sql_function_give_attributes(spark: SparkSession, files: tuple[str, str]) -> None:
    names = ["request.mfa", "request.hour", "request.tags", "entity.color"]
    register_function(spark, *files, name="may_close", attributes=names, refresh=None)
    calls = [
        ("true, 3, array('day'), 'red'", True),
        ("true, cast(3 as tinyint), null, null", True),
        ("null, 3, null, null", False),
        ("true, 12, null, null", False),
        ("true, 24, null, null", False),
        ("true, 3, array('dusk'), null", False),
    ]
    asked = spark.sql("SELECT " + ", ".join(f"may_close('ann', 'close', 'ticket:t1', {more})" for more, _ in calls))
    assert list(asked.collect()[0]) == [allowed for _, allowed in calls]
    with pytest.raises(Exception, match="argument 4 of the function is of the type `string`: true or false is wanted"):
        spark.sql("SELECT may_close('ann', 'close', 'ticket:t1', 'true', 3, null, null)").collect()
    for wrong, message in (
        (["request.mfo"], "unknown attribute `mfo` of the request; did you mean `mfa`"),
        (["mfa"], "write KIND.NAME, as in request.mfa"),
        (["user.staff"], "comes from the state"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            register_function(spark, *files, attributes=wrong)
    with pytest.raises(UsageError, match="attributes is the text"):
        register_function(spark, *files, attributes="request.mfa")


@pytest.mark.slow
def test_tables_of_spark_are_validated_there(spark: SparkSession, files: tuple[str, str]) -> None:
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    tables = {name: spark.createDataFrame(rows) for name, rows in yaml.safe_load(STATE).items()}
    expected = [row[3:] for row in ROWS]
    assert decision_rows.answer_rows(decide(frame, files[0], tables, **columns())) == expected
    batches: list[list[Any]] = []
    decide_batch = each_batch(
        lambda decided, _: batches.append(decision_rows.answer_rows(decided)), files[0], lambda _: tables, **columns()
    )
    decide_batch(frame, 0)
    assert batches == [expected]
    bad = {
        **tables,
        "grants": spark.createDataFrame([("user:ann", "deny", "READ", "folder:x//")], list(tables["grants"].columns)),
    }
    with pytest.raises(StateInvalid, match="folder:x//"):
        decide(frame, files[0], bad, **columns())
    twice = tables["grants"].select("*", F.lit("user:cy").alias("grantee"))
    with pytest.raises(UsageError, match="column `grantee` occurs 2 times"):
        decide(frame, files[0], {**tables, "grants": twice}, **columns())
    with pytest.raises(UsageError, match="the configuration of the state has no table of a state"):
        decide(frame, files[0], {}, **columns())
    broken = tables["grants"].withColumn("grantee", F.expr("cast(unhex('ff') as string)"))
    with pytest.raises(StateInvalid, match="not UTF-8"):
        decide(frame, files[0], {**tables, "grants": broken}, **columns())


@pytest.mark.slow
def test_rows_of_the_state_hold_for_a_time(spark: SparkSession, files: tuple[str, str], tmp_path: Path) -> None:
    rows = "{'grantee': 'user:ann', effect: allow, privilege: READ, entity: 'ticket:t1', until: 2026-03-03T12:00Z}"
    places = "entities: [{entity: 'ticket:t1', parent: 'drive:d'}]"
    Path(files[1]).write_text(f"grants: [{rows}]\n{places}\n", encoding="utf-8")
    bundle = tmp_path / "state.tar.gz"
    bundle.write_bytes(state_bundle(load_program(files[0]), state_of(files)))
    frame = decision_rows.frame(spark, [("11",), ("12",), (None,)], "hour string")
    times = F.to_timestamp(F.concat(F.lit("2026-03-03T"), "hour", F.lit(":00:00Z")))
    arguments: dict[str, Any] = {"subject": user("ann"), "action": "read", "resource": ("comment", F.lit("t1/c"))}
    for state in (files[1], str(bundle)):
        by_row = decide(frame, files[0], state, **arguments, at=times)
        assert decision_rows.answer_rows(by_row) == [(True, None), (False, "not granted"), (False, "null")]
        for at, allowed in (("2026-03-03T11:59Z", True), ("2026-03-03T12:00Z", False)):
            assert visible(frame, files[0], state, **arguments, at=at).count() == 3 * allowed


@pytest.mark.slow
def test_rows_give_attributes(spark: SparkSession, files: tuple[str, str], tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        (True, 3, ["day"], "a", "red"),
        (None, 3, [], None, None),
        (True, 12, None, "a", "red"),
        (True, 24, None, "a", "red"),
        (True, 3, ["dusk"], "a", "red"),
        (True, 3, ["day", None], "a", "red"),
        (True, 3, None, "a", "green"),
    ]
    frame = decision_rows.frame(spark, rows, "mfa boolean, hour int, tags array<string>, room string, color string")
    attributes = {
        "request": {"mfa": "mfa", "hour": F.col("hour"), "tags": "tags", "room": "room"},
        "entity": {"color": "color"},
    }
    arguments: dict[str, Any] = {"subject": user("ann"), "action": "close", "resource": ("ticket", F.lit("t1"))}
    invalid = (False, "invalid attribute")
    expected = [(True, None), (False, "not granted"), (False, "not granted"), invalid, invalid, invalid, invalid]
    assert decision_rows.answer_rows(decide(frame, *files, **arguments, attributes=attributes)) == expected
    seen = visible(frame, *files, **arguments, attributes=attributes)
    assert [row["n"] for row in seen.collect()] == [0]
    constants = {"request": {"mfa": True, "hour": 3, "tags": ["day"]}}
    assert visible(frame, *files, **arguments, attributes=constants).count() == len(rows)
    no_text = frame.withColumn("room", F.expr("cast(unhex('ff') as string)"))
    answers = decision_rows.answer_rows(decide(no_text, *files, **arguments, attributes=attributes).drop("room"))
    assert answers == [(False, "invalid attribute")] * len(rows)
    assert require(*files, "ann", "close", "ticket:t1", attributes=constants).allowed
    program = load_program(files[0])
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    (bundles / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (bundles / "state.tar.gz").write_bytes(state_bundle(program, state_of(files)))
    policy = tmp_path / "lake.yaml"
    policy.write_text(LAKE, encoding="utf-8")
    for given, how in (
        ({}, "decide in columns"),
        (constants, "that gives attributes by itself, and the others in columns"),
    ):
        steps = plan(frame, str(policy), State(), **arguments | {"action": "read"}, attributes=given).steps
        assert steps[1].endswith(how)
    through = decide_with(frame, str(bundles), **arguments, attributes=attributes)
    assert decision_rows.answer_rows(through) == expected
    by_bundle = decide(frame, files[0], str(bundles / "state.tar.gz"), **arguments, attributes=attributes)
    assert decision_rows.answer_rows(by_bundle) == expected


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"request": {"mfo": "mfa"}}, "unknown attribute `mfo` of the request; did you mean `mfa`"),
        ({"request": {"mfa": "hour"}}, "attribute `request.mfa` is a column of type `int`: true or false is wanted"),
        ({"request": {"mfa": 3}}, "the attribute `mfa` of the request must be true or false"),
        ({"request": {"tags": "mfa"}}, "an array of texts is wanted"),
        ({"request": {"room": "nowhere"}}, "no column `nowhere`"),
        ({"user": {"staff": True}}, "comes from the state"),
        ({"with": {"to": {"color": "mfa"}}}, "of an object that is not given"),
        ({"what": {}}, "unknown kind `what`"),
    ],
)
def test_wrong_attributes_are_mistakes(
    spark: SparkSession, files: tuple[str, str], attributes: Any, message: str
) -> None:
    frame = decision_rows.frame(spark, [], "mfa boolean, hour int")
    with pytest.raises((InvalidRequest, UsageError)) as caught:
        decide(
            frame, *files, subject=user("ann"), action="read", resource=("paper", F.lit("d/a/p")), attributes=attributes
        )
    assert message in str(caught.value)


ENTITLEMENTS = {
    ("user:ann", "list", "folder:d/a", "grant", "folder:d/a"),
    ("user:ann", "list", "folder:d/a/b", "grant", "folder:d/a"),
    ("user:ann", "read", "ticket:t1", "grant", "ticket:t1"),
    ("user:ann", "edit", "ticket:t1", "grant", "ticket:t1"),
    ("user:ann", "close", "ticket:t1", "grant", "ticket:t1"),
    ("user:ann", "read", "paper:d/a/b/p", "grant", "folder:d/a"),
    ("user:ben", "list", "folder:d/a", "grant", "drive:d"),
    ("user:ben", "list", "folder:d/a/b", "grant", "drive:d"),
    ("user:ben", "list", "folder:d/a/b/c", "grant", "drive:d"),
    ("user:ben", "read", "ticket:t1", "grant", "drive:d"),
    ("user:ben", "close", "ticket:t1", "grant", "drive:d"),
    ("user:ben", "read", "paper:d/a/b/p", "grant", "drive:d"),
}


def entitlement_rows(matrix: Any) -> set[tuple[str, ...]]:
    return {
        (row["principal"], row["operation"], f"{row['type']}:{row['path']}", row["via_kind"], row["via_entity"])
        for row in matrix.collect()
    }


@pytest.mark.long
def test_entitlements_are_found_by_the_index(spark: SparkSession, files: tuple[str, str], tmp_path: Path) -> None:
    given: dict[str, Any] = {"request": {"mfa": True, "hour": 3}}
    named = {row for row in ENTITLEMENTS if not row[2].startswith("paper:")}
    assert entitlement_rows(entitlements(*files, spark=spark, attributes=given)) == named
    assert entitlement_rows(entitlements(*files, spark=spark)) == {row for row in named if row[1] != "close"}
    frame = spark.createDataFrame([(row[2],) for row in sorted(ENTITLEMENTS)], "entity string")
    bundle = tmp_path / "state.tar.gz"
    bundle.write_bytes(state_bundle(load_program(files[0]), state_of(files)))
    tables = {name: spark.createDataFrame(rows) for name, rows in yaml.safe_load(STATE).items()}
    for state in (files[1], str(bundle), tables):
        assert entitlement_rows(entitlements(files[0], state, frame, attributes=given)) == ENTITLEMENTS
    [edit] = entitlements(*files, ["ticket:t1"], operations=["edit"], spark=spark).collect()
    assert [(link["atom"], link["kind"], link["principal"]) for link in edit["via"]] == [
        ("READ (ticket:t1)", "grant", "user:ann"),
        ("user.staff = true", "attribute", "user:ann"),
    ]
    for plan_ in ("process", "spark"):
        certificate = certify(*files, tmp_path / plan_, plan=plan_, spark=spark, attributes=given)
        assert certificate.totals.entitlements == len(named)
        assert ("attributes", "request.hour = 3, request.mfa = True") in certificate.origin.asked
    of_ben = entitlements(*files, users=["ben"], attributes=given, spark=spark)
    assert entitlement_rows(of_ben) == {row for row in named if row[0] == "user:ben"}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"user": {"staff": True}}, "a matrix is about many users: their attributes come from the state alone"),
        ({"entity": {"color": "red"}}, "a matrix is about many resources"),
        ({"request": {"mfo": True}}, "unknown attribute `mfo` of the request; did you mean `mfa`"),
        ({"request": {"hour": 24}}, "the attribute `hour` of the request must be"),
        ({"with": {"to": {"color": "red"}}}, "the attributes of `to` are those of an object that is not given"),
        ({"what": {}}, "unknown kind `what`"),
    ],
)
def test_wrong_attributes_of_a_matrix_are_mistakes(files: tuple[str, str], attributes: Any, message: str) -> None:
    policy = open_policy(files[0])
    with pytest.raises(UsageError) as caught:
        open_matrix(policy, open_state(policy, files[1]), Question(attributes=given_by(attributes)))
    assert message in str(caught.value)


@pytest.mark.long
def test_portions_decide_such_requests_too(spark: SparkSession, files: tuple[str, str]) -> None:
    frame = decision_rows.frame(spark, [row[:3] for row in ROWS], "user string, action string, entity string")
    decided = decide(frame, *files, **columns(), plan="portions")
    assert decision_rows.answer_rows(decided) == [row[3:] for row in ROWS]
