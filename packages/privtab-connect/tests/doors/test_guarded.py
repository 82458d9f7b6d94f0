"""A door behind the sidecar's own lock: only its answers are open, and logs tell the policy's requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trino_filters
from checkout import ROOT
from failing_servers import wait_for
from signed_door import DoorServer, door_server

from privtab import Client
from privtab.base.resources import opa as opa_folder

STATE = ROOT / "policy_src" / "polaris" / "state.yaml"
TOKEN = "ask-0123456789"  # noqa: S105  (of the test alone)

pytestmark = pytest.mark.slow


@contextmanager
def guarded(folder: Path, policy: str | Path, door: str, state: Path) -> Iterator[DoorServer]:
    access = {"privtab_access": {"tokens": {hashlib.sha256(TOKEN.encode()).hexdigest(): ["ask"]}}}
    (folder / "access.json").write_text(json.dumps(access), encoding="utf-8")
    (folder / "log.json").write_text(json.dumps({"privtab_log": {"users": "hash", "salt": "s"}}), encoding="utf-8")
    system = opa_folder() / "system"
    paths = (system / "authz" / "authz.rego", system / "log" / "mask.rego", folder / "access.json", folder / "log.json")
    guard = ("--authentication=token", "--authorization=basic")
    with door_server(folder, policy, door, state, paths=paths, options=guard) as server:
        server.session.headers["Authorization"] = f"Bearer {TOKEN}"
        yield server


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    with guarded(tmp_path_factory.mktemp("guarded"), "polaris/1.7", "polaris", STATE) as server:
        yield server


def request(user: str, roles: list[str], action: str) -> dict[str, object]:
    parents = [
        {"type": "CATALOG", "name": "silver", "parents": []},
        {"type": "NAMESPACE", "name": "sales", "parents": []},
    ]
    table = {"type": "TABLE_LIKE", "name": "orders", "parents": parents}
    return {
        "actor": {"principal": user, "roles": roles},
        "action": action,
        "resource": {"targets": [table]},
        "context": {"request_id": "secret", "realm": "r"},
    }


def test_only_the_answers_are_open(door: DoorServer) -> None:
    assert door.ask("decision", request("alice", ["engineer"], "LOAD_TABLE")) == {"allow": True, "refused": None}
    for path in ("lib", "lib/logged", "lib/subject", "decision/allow", "other", ""):
        answer = door.session.post(f"{door.url}/{path}", json={"input": {}}, timeout=10)
        assert answer.status_code == 401, path
    for path in ("privtab_program/polaris/doors", "privtab_program/polaris/doors/polaris", "privtab/polaris/doors"):
        assert door.session.get(f"{door.opa.url}/v1/data/{path}", timeout=10).status_code == 401
    door.session.headers.pop("Authorization")
    assert door.session.post(f"{door.url}/decision", json={"input": {}}, timeout=10).status_code == 401
    door.session.headers["Authorization"] = f"Bearer {TOKEN}"


def test_logs_tell_the_policys_requests_and_why_there_are_none(door: DoorServer) -> None:
    asked = [
        request("alice", ["engineer"], "LOAD_TABLE"),
        request("alice", ["wizard"], "LOAD_TABLE"),
        request("alice", ["engineer"], "FLY_TABLE"),
        {"actor": "secret", "action": {"secret": 1}},
    ]
    before = len(door.decision_logs())
    for one in asked:
        door.ask("decision", one)
    wait_for(lambda: len(door.decision_logs()) == before + len(asked))
    allowed, role, operation, nonsense = (log for log in door.decision_logs()[before:])
    alice = hashlib.sha256(b"salice").hexdigest()
    meant = {
        "subject": {"type": "user", "id": alice},
        "action": {"name": "load_table"},
        "resource": {"type": "table", "id": "silver/sales/orders"},
        "context": {"with": {}},
    }
    assert allowed["input"] == {"operation": "LOAD_TABLE", "requests": [meant]}
    assert role["input"]["refused"] == {"reason": "role_not_held", "operation": "LOAD_TABLE"}
    assert operation["input"] == {
        "operation": "FLY_TABLE",
        "requests": [],
        "refused": {"reason": "unknown_operation", "operation": "FLY_TABLE"},
    }
    assert nonsense["input"]["requests"] == []
    assert "secret" not in json.dumps([allowed, role, operation, nonsense])
    assert "alice" not in json.dumps([allowed, role, operation, nonsense])


def test_filters_are_open_and_their_sql_is_not_logged(tmp_path: Path) -> None:
    (tmp_path / "trino.yaml").write_text(trino_filters.policy(), encoding="utf-8")
    (tmp_path / "state.json").write_text(json.dumps(trino_filters.state()), encoding="utf-8")
    table = dict(zip(("catalogName", "schemaName", "tableName"), ("tpch", "tiny", "nation"), strict=True))
    address = {"column": {**table, "tableName": "customer", "columnName": "address", "columnType": "varchar"}}
    asked = {"identity": {"user": "zoe", "groups": []}}
    with guarded(tmp_path, tmp_path / "trino.yaml", "trino", tmp_path / "state.json") as door:
        with Client(door.opa.url, system="trino", token=TOKEN) as client:
            assert client.row_filter("zoe", trino_filters.NATION).sql == "regionkey = 1"
            assert client.column_masks("zoe", [trino_filters.ADDRESS])[0].name == "first_letters"
        one = {"context": asked, "action": {"operation": "GetRowFilters", "resource": {"table": table}}}
        assert door.ask("rowFilters", one) == [{"expression": "regionkey = 1"}]
        one = {"context": asked, "action": {"operation": "GetColumnMask", "resource": address}}
        assert door.ask("columnMask", one) == {"expression": 'substr("address", 1, 4)'}
        one = {"context": asked, "action": {"operation": "GetColumnMask", "filterResources": [address]}}
        assert len(door.ask("batchColumnMasks", one)) == 1
        wait_for(lambda: any(log["path"].endswith("/batchColumnMasks") for log in door.decision_logs()))
        logs = [log for log in door.decision_logs() if "filters" in log["path"] or "/trino/doors" in log["path"]]
        assert len(logs) == 5
        named = [log["input"]["requests"][0]["action"]["name"] for log in logs]
        assert named == ["row_filter", "column_mask", "row_filter", "column_mask", "column_mask"]
        assert not any(said in json.dumps(logs) for said in ("zoe", "regionkey", "substr"))
