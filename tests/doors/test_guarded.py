"""A door behind the sidecar's own lock: only its answers are open, and logs tell the policy's requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from failing_servers import wait_for
from signed_door import DoorServer, door_server

from privtab._resources import opa as opa_folder

STATE = Path(__file__).parents[2] / "policy_src" / "polaris" / "state.yaml"
TOKEN = "ask-0123456789"  # noqa: S105  (of the test alone)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    folder = tmp_path_factory.mktemp("guarded")
    access = {"privtab_access": {"tokens": {hashlib.sha256(TOKEN.encode()).hexdigest(): ["ask"]}}}
    (folder / "access.json").write_text(json.dumps(access), encoding="utf-8")
    (folder / "log.json").write_text(json.dumps({"privtab_log": {"users": "hash", "salt": "s"}}), encoding="utf-8")
    system = opa_folder() / "system"
    paths = (system / "authz" / "authz.rego", system / "log" / "mask.rego", folder / "access.json", folder / "log.json")
    guard = ("--authentication=token", "--authorization=basic")
    with door_server(folder, "polaris/1.7", "polaris", STATE, paths=paths, options=guard) as server:
        server.session.headers["Authorization"] = f"Bearer {TOKEN}"
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
