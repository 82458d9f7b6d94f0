"""Logs of other systems, as the shipped mapping documents say, and what is wrong with a document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from privtab.base import PolicyInvalid
from privtab.command._app import run
from privtab_logs import mapped, reading
from privtab_logs.schema import MALFORMED, NO_ANSWER, UNREAD, Reading

AUDIT: dict[str, Any] = {
    "repoType": 3, "repo": "hive", "reqUser": "user1", "evtTime": "2021-11-01 14:42:34.683", "access": "SELECT",
    "resource": "Sales/Orders", "resType": "@table", "action": "select", "result": 1, "agent": "hiveServer2", "policy": 8,
    "enforcer": "ranger-acl", "logType": "RangerAudit", "id": "f2e39748-0", "seq_num": 1, "event_count": 1, "event_dur_ms": 0,
    "tags": [], "cluster_name": "",
}  # fmt: skip
"""An entry of an audit file, as plug-ins of Ranger write it."""

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
    assert [(row["problem"], row["time"]) for row in found[2:]] == [(MALFORMED, found[0]["time"]), (None, None)]
    assert account.other == {
        "access to a file, a queue, a topic, a key or a service, which is no decision of a table": 1
    }
    assert account.damaged == 1


@pytest.mark.parametrize("result", [1, "1", True, "true", "ALLOWED"])
@pytest.mark.parametrize("type_", ["@column", "column"])
def test_an_audit_of_several_columns_is_a_decision_on_each(result: Any, type_: str, tmp_path: Path) -> None:
    given = {**AUDIT, "resource": "Sales/Orders/Id,amount", "resType": type_, "result": result}
    found, account = rows("ranger", tmp_path, given, {**AUDIT, "result": 0}, {**AUDIT, "result": False})
    assert [(row["resource"], row["allowed"], row["problem"]) for row in found] == [
        ("column:sales/orders/id", True, None),
        ("column:sales/orders/amount", True, None),
        ("table:sales/orders", False, None),
        ("table:sales/orders", False, None),
    ]
    assert account.damaged == 0


@pytest.mark.parametrize(
    "time",
    [
        "2021-11-01 14:42:34.683", "2021-11-01T14:42:34.683Z", 1635777754683, "1635777754683", "2021-11-01T14:42:34.683+0000",
        "2021-11-01T15:42:34.683+01:00", "2021-11-01 14:42:34,683",
    ],
)  # fmt: skip
def test_times_of_an_audit(time: Any, tmp_path: Path) -> None:
    (row,), account = rows("ranger", tmp_path, {**AUDIT, "evtTime": time})
    assert row["time"] == datetime(2021, 11, 1, 14, 42, 34, 683_000, tzinfo=UTC)
    assert account.untimed == 0


@pytest.mark.parametrize(
    "time", [None, "", "yesterday", 7, 1635777754, 1e25, 10**25, "9" * 30, "2021-13-01 00:00:00", True]
)
def test_a_time_that_cannot_be_read_is_counted(time: Any, tmp_path: Path) -> None:
    (row,), account = rows("ranger", tmp_path, {**AUDIT, "evtTime": time})
    assert row["time"] is None
    assert account.untimed == 1
    assert account.problems or "1 decision without a time that can be read" in account.notes({})


@pytest.mark.parametrize(
    ("change", "damaged", "problem"),
    [
        ({"reqUser": 5}, 0, MALFORMED),
        ({"reqUser": ["ann", "ben"]}, 0, MALFORMED),
        ({"reqUser": None}, 0, MALFORMED),
        ({"action": {"a": 1}}, 0, MALFORMED),
        ({"resource": ["sales"]}, 0, MALFORMED),
        ({"resource": "sales//x"}, 0, MALFORMED),
        ({"resource": "sales/orders/a,,b", "resType": "@column"}, 0, MALFORMED),
        ({"result": 2}, 0, NO_ANSWER),
        ({"result": [1]}, 0, NO_ANSWER),
        ({"result": None}, 0, NO_ANSWER),
        ({"resType": "@url"}, 1, None),
        ({"resType": ["@table"]}, 1, None),
        ({"resource": ""}, 1, None),
        ({"logType": "Audit"}, 1, None),
    ],
)
def test_an_event_of_another_form_is_never_left_out(
    change: dict[str, Any], damaged: int, problem: str | None, tmp_path: Path
) -> None:
    found, account = rows("ranger", tmp_path, AUDIT, {**AUDIT, **change}, AUDIT)
    assert account.damaged == damaged
    assert len(found) >= 2
    assert set(account.problems) == ({problem} if problem else set())
    assert account.other == {}


def test_an_access_in_a_service_without_tables_of_ours_is_of_no_consequence(tmp_path: Path) -> None:
    given = {**AUDIT, "repoType": 2, "resType": "table", "resource": "ns:t"}
    found, account = rows("ranger", tmp_path, given)
    assert (found, account.damaged, sum(account.other.values())) == ([], 0, 1)


@pytest.mark.parametrize("update", ["DELETE", "", {}, [], False])
def test_what_a_document_does_not_read_of_an_entry_makes_the_answer_incomplete(update: Any, tmp_path: Path) -> None:
    metadata = {"queryId": "q", "queryState": "FINISHED", "tables": [], "updateType": update}
    found, _ = rows("trino", tmp_path, {"metadata": metadata, "context": {"user": "ann"}})
    assert [row["problem"] for row in found] == [UNREAD]


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
        "trino",
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
    assert account.other == {
        "query that failed or only began, of which an event does not say what it was about": 1,
        "query of no table": 1,
    }


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
    file.write_text(
        "log: 1\ntitle: x\nwhere: '['\neach: '[@]'\ndecision: {user: '{u}', colour: red}\nallowed: a\nother: {x: '[', y: a}\n"
    )
    with pytest.raises(PolicyInvalid) as caught:
        mapped.load(str(file))
    assert [(found.code, found.span.line) for found in caught.value.diagnostics] == [
        ("U001", 3),
        ("U001", 5),
        ("U001", 7),
    ]
