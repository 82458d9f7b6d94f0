"""Logs of other systems, as the shipped mapping documents say, and what is wrong with a document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from privtab.cli._app import run
from privtab.errors import PolicyInvalid
from privtab.logs import mapped, reading
from privtab.logs.schema import MALFORMED, Reading

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
    file.write_text("log: 1\ntitle: x\nwhere: '['\neach: '[@]'\ndecision: {user: '{u}', colour: red}\nallowed: a\n")
    with pytest.raises(PolicyInvalid) as caught:
        mapped.load(str(file))
    assert [(found.code, found.span.line) for found in caught.value.diagnostics] == [("U001", 3), ("U001", 5)]
