"""Logs of other systems, as the shipped mapping documents say, and what is wrong with a document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from signed_door import door_server

from privtab.cli._app import run
from privtab.errors import PolicyInvalid
from privtab.logs import mapped, reading
from privtab.logs.moments import KnownState, Moments, Policy
from privtab.logs.replaying import replay
from privtab.logs.schema import MALFORMED, NO_ANSWER, WRONG_ANSWER, Reading
from privtab.pipeline import find_policy, load_program
from privtab.state.load import from_tables, load

AUDIT: dict[str, Any] = {
    "repoType": 3, "repo": "hive", "reqUser": "user1", "evtTime": "2021-11-01 14:42:34.683", "access": "SELECT",
    "resource": "Sales/Orders", "resType": "@table", "action": "select", "result": 1, "agent": "hiveServer2", "policy": 8,
    "enforcer": "ranger-acl", "logType": "RangerAudit", "id": "f2e39748-0", "seq_num": 1, "event_count": 1, "event_dur_ms": 0,
    "tags": [], "cluster_name": "",
}  # fmt: skip
"""An entry of an audit file, as plug-ins of Ranger write it."""

TRINO: dict[str, Any] = {
    "decision_id": "t1",
    "path": "trino/allow",
    "input": {
        "context": {"identity": {"user": "foo", "groups": ["some-group"]}, "softwareStack": {"trinoVersion": "434"}},
        "action": {
            "operation": "SelectFromColumns",
            "resource": {
                "table": {"catalogName": "lake", "schemaName": "a/b", "tableName": "t", "columns": ["x", "y"]}
            },
        },
    },
    "result": False,
    "timestamp": "2026-11-28T00:22:38Z",
}
"""What Trino asks an OPA, as its documentation shows it, in the OPA's decision log."""

POLICY = """\
privtab: 1
system: hive
version: "1"
entities: {database: {table: {column: }}}
privileges: [SELECT, UPDATE]
semantics: {inheritance: down}
tables:
  table: {select: SELECT (table), update: UPDATE (table)}
"""


def rows(document: str, tmp_path: Path, *entries: Any) -> tuple[list[dict[str, Any]], Reading]:
    file, account = tmp_path / "audit.json", Reading()
    file.write_text("\n".join(map(json.dumps, entries)))
    found = reading.batches([file], account, mapped.load(document).rows)
    return [row for batch in found for row in batch.to_pylist()], account


def test_an_audit_of_ranger(tmp_path: Path) -> None:
    found, account = rows(
        "ranger",
        tmp_path,
        AUDIT,
        {
            **AUDIT,
            "evtTime": "2016-10-26T05:14:21.686Z",
            "result": 0,
            "resource": "sales/orders/a b",
            "resType": "column",
        },
        {**AUDIT, "resType": "path", "resource": "/user"},
        {**AUDIT, "reqUser": ""},
        {**AUDIT, "evtTime": 7},
        ["no audit"],
    )
    first = {name: cell for name, cell in found[0].items() if cell is not None}
    assert first == {
        "time": datetime(2021, 11, 1, 14, 42, 34, 683_000, tzinfo=UTC),
        "decision_id": "f2e39748-0",
        "user": "user1",
        "action": "select",
        "resource": "table:sales/orders",
        "allowed": True,
        "origin": "ranger",
        "position": f"{tmp_path}/audit.json:1",
    }
    assert (found[1]["resource"], found[1]["allowed"], found[1]["time"].year) == (
        "column:sales/orders/a b",
        False,
        2016,
    )
    assert [row["problem"] for row in found[2:]] == [MALFORMED]
    assert account.other == {"not an entry of ranger": 2}
    assert account.damaged == 1


def test_questions_of_trino_in_a_log_of_opa(tmp_path: Path) -> None:
    catalog = {"operation": "AccessCatalog", "resource": {"catalog": {"name": "lake"}}}
    found, account = rows(
        "trino",
        tmp_path,
        TRINO,
        {**TRINO, "input": {**TRINO["input"], "action": catalog}, "result": True},
        {**TRINO, "result": "yes"},
        {**TRINO, "input": {**TRINO["input"], "action": {"operation": "ExecuteQuery"}}},
    )
    asked = [
        (row["user"], row["groups"], row["action"], row["resource"], row["allowed"], row["problem"]) for row in found
    ]
    x, y = (("foo", ["some-group"], "SelectFromColumns", f"column:lake/a%2Fb/t/{name}") for name in "xy")
    assert asked == [
        # One of two columns was denied: which, the log does not say.
        (*x, None, NO_ANSWER),
        (*y, None, NO_ANSWER),
        ("foo", ["some-group"], "AccessCatalog", "catalog:lake", True, None),
        (*x, None, WRONG_ANSWER),
        (*y, None, WRONG_ANSWER),
    ]
    assert account.other == {"not an entry of trino": 1}


@pytest.mark.parametrize("answer", [True, False, None, [0]])
@pytest.mark.parametrize("operation", ["SelectFromColumns", "CreateViewWithSelectFromColumns", "UpdateTableColumns"])
def test_a_question_about_columns_is_one_decision_for_each(operation: str, answer: object, tmp_path: Path) -> None:
    def question(schema: str, *columns: str) -> dict[str, Any]:
        (about,) = tables("t", columns=list(columns))
        about["table"]["schemaName"] = schema
        action = {"operation": operation, "resource": about}
        return {**TRINO, "input": {**TRINO["input"], "action": action}, "result": answer}

    asked = [question("s", "x"), question("s", "x", "y"), question("s"), question("information_schema", "x", "y")]
    found, _ = rows("trino", tmp_path, *asked)
    inside = "information_schema:lake" if operation == "SelectFromColumns" else "table:lake/information_schema/t"
    several = answer if answer is not False else None
    assert [(row["resource"], row["allowed"]) for row in found] == [
        (resource, given if isinstance(given, bool) else None)
        for resource, given in (
            ("column:lake/s/t/x", answer),
            ("column:lake/s/t/x", several),
            ("column:lake/s/t/y", several),
            ("table:lake/s/t", answer),
            (inside, answer),
        )
    ]
    assert {row["problem"] for row in found if row["allowed"] is None} <= {NO_ANSWER, WRONG_ANSWER}


def batch(operation: str, *resources: Any, result: Any) -> dict[str, Any]:
    action = {"operation": operation, "filterResources": list(resources)}
    return {**TRINO, "input": {**TRINO["input"], "action": action}, "result": result}


def tables(*names: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    more = {} if columns is None else {"columns": columns}
    return [{"table": {"catalogName": "lake", "schemaName": "s", "tableName": name, **more}} for name in names]


def test_a_batch_of_trino_is_one_decision_for_each_item(tmp_path: Path) -> None:
    found, account = rows(
        "trino",
        tmp_path,
        batch("FilterTables", *tables("a", "b", "c"), result=[2, 0]),
        batch("FilterColumns", *tables("a", columns=["x", "y"]), result=[1]),
        batch("FilterTables", *tables("a"), result=[True]),
        batch("FilterTables", *tables("a"), result=[1]),
        batch("FilterTables", result=[]),
        batch("FilterColumns", *tables("a", "b", columns=["x"]), result=[0]),
    )
    assert [(row["action"], row["resource"], row["allowed"], row["problem"]) for row in found] == [
        ("FilterTables", "table:lake/s/a", True, None),
        ("FilterTables", "table:lake/s/b", False, None),
        ("FilterTables", "table:lake/s/c", True, None),
        ("FilterColumns", "column:lake/s/a/x", False, None),
        ("FilterColumns", "column:lake/s/a/y", True, None),
        ("FilterTables", "table:lake/s/a", None, WRONG_ANSWER),
        ("FilterTables", "table:lake/s/a", None, WRONG_ANSWER),
    ]
    assert account.other == {"not an entry of trino": 2}


def test_events_of_queries_that_trino_completed(tmp_path: Path) -> None:
    def event(query: str, user: str, *tables: Any, **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"queryId": query, "queryState": "FINISHED", "tables": list(tables), **more},
            "context": {"user": user, "groups": ["staff"]},
            "ioMetadata": {"output": {"catalogName": "lake", "schema": "s", "table": "new"}},
            "createTime": "2026-03-03T05:39:52.129Z",
        }

    def read(name: str, user: str, *columns: str, schema: str = "s") -> dict[str, Any]:
        return {
            "catalog": "lake",
            "schema": schema,
            "table": name,
            "authorization": user,
            "columns": [{"column": column} for column in columns],
        }

    found, account = rows(
        "trino_queries",
        tmp_path,
        event("q1", "cleo", read("t", "bob", "x"), read("v", "cleo", "x", "y")),
        event("q2", "cleo", read("t", "cleo")),
        event("q3", "cleo", read("tables", "cleo", "table_name", schema="information_schema")),
        event("q4", "cleo", read("t", "cleo", "x"), updateType="INSERT"),
        event("q5", "cleo", updateType="INSERT"),
        event("q6", "cleo", read("t", "cleo", "x"), queryState="FAILED"),
        event("q7", "cleo"),
    )
    assert [(row["decision_id"], row["user"], row["groups"], row["action"], row["resource"]) for row in found] == [
        ("q1", "bob", None, "CreateViewWithSelectFromColumns", "column:lake/s/t/x"),
        ("q1", "cleo", ["staff"], "SelectFromColumns", "column:lake/s/v/x"),
        ("q1", "cleo", ["staff"], "SelectFromColumns", "column:lake/s/v/y"),
        ("q2", "cleo", ["staff"], "SelectFromColumns", "table:lake/s/t"),
        ("q3", "cleo", ["staff"], "SelectFromColumns", "information_schema:lake"),
        ("q4", "cleo", ["staff"], "SelectFromColumns", "column:lake/s/t/x"),
        ("q4", "cleo", ["staff"], "InsertIntoTable", "table:lake/s/new"),
        ("q5", "cleo", ["staff"], "InsertIntoTable", "table:lake/s/new"),
    ]
    assert all(row["allowed"] and row["problem"] is None for row in found)
    assert account.other == {"not an entry of trino_queries": 2}


@pytest.mark.slow
def test_what_a_door_answered_is_replayed(tmp_path: Path) -> None:
    """A real OPA with the door of Trino, asked as Trino asks it, one by one and in batches."""
    state = Path(__file__).parents[2] / "policy_src" / "trino" / "state.yaml"
    with door_server(tmp_path, "trino/476", "trino", state) as door:

        def ask(answer: str, user: str, action: dict[str, Any]) -> Any:
            return door.ask(answer, {"context": {"identity": {"user": user, "groups": []}}, "action": action})

        in_tiny = {"catalogName": "tpch", "schemaName": "tiny"}
        some = [{"table": {**in_tiny, "tableName": name}} for name in ("customer", "nation")]
        some += [
            {"table": {"catalogName": "memory", "schemaName": name, "tableName": "t"}}
            for name in ("lab", "information_schema")
        ]
        schemas = [
            {"schema": {"catalogName": "memory", "schemaName": name}} for name in ("lab", "information_schema", "x")
        ]
        columns = [{"table": {**in_tiny, "tableName": "customer", "columns": ["name", "phone"]}}]
        for user in ("zoe", "ann", "olga"):
            ask("batch", user, {"operation": "FilterTables", "filterResources": some})
            ask("batch", user, {"operation": "FilterSchemas", "filterResources": schemas})
            ask("batch", user, {"operation": "FilterColumns", "filterResources": columns})
            ask("batch", user, {"operation": "FilterCatalogs", "filterResources": [{"catalog": {"name": "tpch"}}]})
            ask("allow", user, {"operation": "DropTable", "resource": some[0]})
            ask("allow", user, {"operation": "ShowTables", "resource": schemas[1]})
            for table in (columns[0]["table"], {**columns[0]["table"], "columns": ["phone"]}, some[0]["table"]):
                ask("allow", user, {"operation": "SelectFromColumns", "resource": {"table": {"columns": [], **table}}})
        log = door.opa.log
    program = load_program(find_policy("trino/476"))
    policy, known = Policy.of(program), KnownState(rows=load(state))
    less = KnownState(rows=from_tables({}, "nothing"))
    entries = mapped.load("trino").rows
    for new in (known, less):
        account = Reading()
        moments = Moments(new=policy, policy=lambda _: policy, state=lambda _: known, new_state=new)
        found = replay(reading.batches([log], account, entries), moments, reading=account)
        # Which of the two columns zoe and ann may not read, the log does not say.
        assert (found.replayed, found.count("unexplained"), found.not_replayed) == (44, 0, {NO_ANSWER: 4})
        assert found.count("lost") == (found.allowed if new is less else 0)
        assert 10 < found.allowed < 35


def test_such_a_log_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(POLICY)
    Path("new.yaml").write_text(POLICY.replace("select: SELECT (table)", "select: UPDATE (table)"))
    Path("state.yaml").write_text(
        "grants: [{grantee: user:user1, effect: allow, privilege: SELECT, entity: database:sales}]\n"
    )
    Path("audit.json").write_text("\n".join(map(json.dumps, [AUDIT, {**AUDIT, "reqUser": "zoe"}])))
    common = ["replay", "audit.json", "--mapping", "ranger", "-p", "new.yaml"]
    assert run([*common, "--old-policy", "old.yaml", "--old-state", "state.yaml", "--fail-on", "lost-in-use"]) == 1
    out = capsys.readouterr().out
    assert "1 lost, 0 gained, 1 unexplained" in out
    assert "user1 select table:sales/orders" in out


def test_what_is_wrong_with_a_document_is_told_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("log: 1\ntitle: x\nwhere: '['\neach: '[@]'\ndecision: {user: '{u}', colour: red}\nallowed: a\n")
    with pytest.raises(PolicyInvalid) as caught:
        mapped.load(str(file))
    assert [(found.code, found.span.line) for found in caught.value.diagnostics] == [("U001", 3), ("U001", 5)]
