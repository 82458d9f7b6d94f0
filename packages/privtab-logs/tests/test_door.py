"""Logs of OPAs that answer doors: the requests that the generated Rego asks the policy, and what the answer says of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from signed_door import door_server

from privtab.command._app import run
from privtab.pipeline import find_policy, load_program
from privtab.state import from_tables
from privtab_connect.doors.document import load as load_door
from privtab_logs import reading
from privtab_logs.door import NO_ROW, DoorLog
from privtab_logs.moments import KnownState
from privtab_logs.schema import MALFORMED, MASKED, NO_ANSWER, UNREAD, WRONG_ANSWER, Reading

STATE = ROOT / "policy_src" / "trino" / "state.yaml"
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


def door_log(policy: str, door: str) -> DoorLog:
    program = load_program(find_policy(policy))
    return DoorLog(load_door(door, program), program)


def rows(tmp_path: Path, *entries: Any) -> tuple[list[dict[str, Any]], Reading]:
    file, account = tmp_path / "opa.json", Reading()
    file.write_text("\n".join(map(json.dumps, entries)))
    found = reading.batches([file], account, door_log("trino/476", "trino").rows)
    return [row for batch in found for row in batch.to_pylist()], account


def question(action: dict[str, Any], result: Any, path: str = "trino/allow", **more: Any) -> dict[str, Any]:
    return {**TRINO, "path": path, "input": {**TRINO["input"], "action": action}, "result": result, **more}


def batch(operation: str, *resources: Any, result: Any) -> dict[str, Any]:
    return question({"operation": operation, "filterResources": list(resources)}, result, "trino/batch")


def table(name: str, *columns: str, schema: str = "s") -> dict[str, Any]:
    return {
        "table": {
            "catalogName": "lake",
            "schemaName": schema,
            "tableName": name,
            **({"columns": list(columns)} if columns else {}),
        }
    }


def test_questions_about_one_thing(tmp_path: Path) -> None:
    catalog = {"operation": "AccessCatalog", "resource": {"catalog": {"name": "lake"}}}
    function = {"catalogName": "lake", "schemaName": "s", "functionName": "f"}
    renamed = {"operation": "RenameTable", "resource": table("t"), "targetResource": table("u", schema="s2")}
    found, account = rows(
        tmp_path,
        TRINO,
        question(catalog, True),
        question({"operation": "ExecuteQuery"}, True),
        question({"operation": "ExecuteFunction", "resource": {"function": function}}, False),
        question(renamed, True),
        {**TRINO, "result": "yes"},
        question({"operation": "Unheard"}, False),
        question({**catalog, "resource": {"catalog": {"name": ""}}}, False),
        question({**catalog, "resource": {"catalog": {"name": ""}}}, True),
        question(catalog, True, erased=["/input/context/identity/groups"]),
        question(
            {**catalog, "operation": None}, False, "privtab/lake/doors/trino/allow", erased=["/input/action/operation"]
        ),
        question(catalog, True, "lake/gate"),
        question(catalog, True, "privtab/lake/doors/other/allow"),
    )
    asked = [
        (row["user"], row["groups"], row["action"], row["resource"], row["with"], row["allowed"], row["problem"])
        for row in found
    ]
    foo = ("foo", ["some-group"])
    x, y = (("SelectFromColumns", f"column:lake/a%2Fb/t/{name}", None) for name in "xy")
    assert asked == [
        # One of two columns was denied: which, the log does not say.
        (*foo, *x, None, UNREAD),
        (*foo, *y, None, UNREAD),
        (*foo, "AccessCatalog", "catalog:lake", None, True, None),
        (*foo, "ExecuteQuery", "server:", None, True, None),
        (*foo, "ExecuteFunction", "function:lake/s/f", None, False, None),
        (*foo, "RenameTable", "table:lake/s/t", [("to", "schema:lake/s2")], True, None),
        (*foo, *x, None, WRONG_ANSWER),
        (*foo, *y, None, WRONG_ANSWER),
        (None, None, None, None, None, True, MALFORMED),
        (*foo, "AccessCatalog", "catalog:lake", None, True, MASKED),
        (None, None, None, None, None, None, MASKED),
        (None, None, None, None, None, None, UNREAD),  # of another door
    ]
    assert account.other == {NO_ROW: 2, "call of no rule that decides": 1}


@pytest.mark.parametrize("answer", [True, False, None, [0]])
@pytest.mark.parametrize("operation", ["SelectFromColumns", "CreateViewWithSelectFromColumns", "UpdateTableColumns"])
def test_a_question_about_columns_is_one_decision_for_each(operation: str, answer: object, tmp_path: Path) -> None:
    def about(schema: str, *columns: str) -> dict[str, Any]:
        resource = table("t", schema=schema)
        resource["table"]["columns"] = list(columns)
        return question({"operation": operation, "resource": resource}, answer)

    found, _ = rows(tmp_path, about("s", "x"), about("s", "x", "y"), about("information_schema", "x"))
    inside = "information_schema:lake" if operation == "SelectFromColumns" else "column:lake/information_schema/t/x"
    several = answer if answer is not False else None
    expected = [
        ("column:lake/s/t/x", answer),
        ("column:lake/s/t/x", several),
        ("column:lake/s/t/y", several),
        (inside, answer),
    ]
    assert [(row["resource"], row["allowed"]) for row in found] == [
        (resource, given if isinstance(given, bool) else None) for resource, given in expected
    ]
    assert {row["problem"] for row in found if row["allowed"] is None} <= {NO_ANSWER, UNREAD, WRONG_ANSWER}


def test_a_batch_is_one_decision_for_each_item(tmp_path: Path) -> None:
    found, account = rows(
        tmp_path,
        batch("FilterTables", *map(table, ("a", "b", "c")), result=[2, 0]),
        batch("FilterColumns", table("a", "x", "y"), result=[1]),
        batch("FilterTables", table("a"), result=[True]),
        batch("FilterTables", table("a"), result=[1]),
        batch("FilterTables", result=[]),
        batch("FilterColumns", table("a", "x"), table("b", "x"), result=[]),
        batch("FilterTables", table(""), table("a", schema="information_schema"), result=[1]),
    )
    assert [(row["action"], row["resource"], row["allowed"], row["problem"]) for row in found] == [
        ("FilterTables", "table:lake/s/a", True, None),
        ("FilterTables", "table:lake/s/b", False, None),
        ("FilterTables", "table:lake/s/c", True, None),
        ("FilterColumns", "column:lake/s/a/x", False, None),
        ("FilterColumns", "column:lake/s/a/y", True, None),
        ("FilterTables", "table:lake/s/a", None, WRONG_ANSWER),
        ("FilterTables", "table:lake/s/a", False, None),
        (None, None, True, MALFORMED),
        ("FilterTables", "information_schema:lake", True, None),
    ]
    assert account.other == {NO_ROW: 2}


@pytest.mark.slow
def test_what_a_door_answered_is_replayed(tmp_path: Path) -> None:
    """A real OPA with the door of Trino, asked as Trino asks it, one by one and in batches."""
    with door_server(tmp_path, "trino/476", "trino", STATE) as door:

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
        for new in (None, KnownState(rows=from_tables({}, "nothing"))):
            found = door.replayed("trino/476", STATE, new)
            # Which of the two columns zoe and ann may not read, the log does not say.
            assert (found.replayed, found.count("unexplained"), found.not_replayed) == (44, 0, {UNREAD: 4})
            assert found.count("lost") == (found.allowed if new else 0)
            assert 10 < found.allowed < 35


@pytest.mark.slow
def test_behind_the_mask_the_same_is_read(tmp_path: Path) -> None:
    """The mask writes the policy's requests in the place of the question, without the groups."""
    mask = ROOT / "opa" / "system" / "log" / "mask.rego"
    found = []
    for number, paths in enumerate([(), (mask,)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with door_server(folder, "trino/476", "trino", STATE, paths=paths) as door:
            for name in ("customer", "nation", "", 5):
                for columns in ([], ["name"], ["name", "phone"], ["phone"], "phone"):
                    about = {"catalogName": "tpch", "schemaName": "tiny", "tableName": name, "columns": columns}
                    action = {"operation": "SelectFromColumns", "resource": {"table": about}}
                    door.ask("allow", {"context": {"identity": {"user": "zoe", "groups": []}}, "action": action})
            account = Reading()
            table = reading.batches([door.opa.log], account, door_log("trino/476", "trino").rows)
            read = [row for batch in table for row in batch.to_pylist()]
            assert account.other[NO_ROW] == 12
            found.append([(row["user"], row["resource"], row["allowed"], row["problem"]) for row in read])
    assert found[0] == found[1]
    assert Counter(allowed for _, _, allowed, _ in found[0]) == {True: 7, False: 1, None: 2}


def test_a_log_of_a_door_is_replayed_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("opa.json").write_text(json.dumps(question({"operation": "ExecuteQuery"}, False)))
    common = ["replay", "opa.json", "-p", "trino/476", "--old-state", str(STATE), "--old-policy", "trino/476"]
    assert run([*common, "--door", "trino", "--fail-on", "unexplained"]) == 1
    assert "1 unexplained" in capsys.readouterr().out
    assert run([*common, "--door", "trino", "--mapping", "ranger"]) == 2
    assert "`--mapping` or `--door`" in capsys.readouterr().err
    assert run([*common, "--door", "nowhere"]) == 2


def test_an_allowed_question_of_an_unknown_operation_is_not_left_out(tmp_path: Path) -> None:
    unknown = {"operation": "Fly", "resource": table("t")}
    found, account = rows(
        tmp_path, question(unknown, True), question({**unknown, "operation": 7}, True), question(unknown, False)
    )
    assert [row["problem"] for row in found] == [MALFORMED, MALFORMED]
    assert account.other == {NO_ROW: 1}
