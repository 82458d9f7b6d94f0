"""The certification scenario of the OpenID AuthZEN Authorization API 1.0 on all its levels, over a socket; C-… are its sections."""

from __future__ import annotations

from typing import Any

import pytest
from authzen_server import Server

EVALUATIONS = "/access/v1/evaluations"
SEARCH = "/access/v1/search/"

RECORD = {"type": "record", "id": "record-1"}
READ = {"subject": {"type": "user", "id": "alice"}, "action": {"name": "read"}, "resource": RECORD}


def decisions(answer: Any) -> list[bool]:
    assert set(answer) == {"evaluations"}
    return [evaluation["decision"] for evaluation in answer["evaluations"]]


@pytest.mark.parametrize(
    ("user", "operation", "decision"),
    [("alice", "read", True), ("alice", "write", True), ("bob", "read", True), ("bob", "write", False)],
)
def test_c_1_4_core_decisions(library: Server, user: str, operation: str, decision: bool) -> None:
    body = {"subject": {"type": "user", "id": user}, "action": {"name": operation}, "resource": RECORD}
    assert [library.decision(body) for _ in range(3)] == [decision] * 3  # C-2.6: the same each time
    assert library.decision({**body, "context": {"time": "2025-06-27T18:03-07:00", "ip": "192.168.1.1"}}) is decision


def test_c_2_2_8_additional_properties(library: Server) -> None:
    body = {
        "subject": {"type": "user", "id": "alice", "properties": {"department": "Sales", "role": "manager"}},
        "action": {"name": "read", "properties": {"method": "GET"}},
        "resource": {**RECORD, "properties": {"status": "active", "owner": "bob"}},
    }
    assert library.decision(body)


@pytest.mark.parametrize(
    ("user", "role", "operation", "soft", "resource", "decision"),
    [
        ("alice", None, "write", None, ("record-2", "archived"), False),  # C-2.2.4
        ("alice", None, "write", None, ("record-1", "archived"), False),  # by the status alone, whatever the record
        ("bob", "admin", "write", None, ("record-2", "archived"), True),  # C-2.2.5
        ("alice", "admin", "write", None, ("record-2", "archived"), True),
        ("alice", None, "delete", True, ("record-1", None), True),  # C-2.2.6
        ("alice", None, "delete", False, ("record-1", None), False),  # C-2.2.7
        ("alice", None, "delete", None, ("record-1", None), False),
    ],
)
def test_c_2_2_properties(
    library: Server,
    user: str,
    role: str | None,
    operation: str,
    soft: bool | None,
    resource: tuple[str, str | None],
    decision: bool,
) -> None:
    name, status = resource
    body = {
        "subject": {"type": "user", "id": user} | ({"properties": {"role": role}} if role else {}),
        "action": {"name": operation} | ({} if soft is None else {"properties": {"soft": soft}}),
        "resource": {"type": "record", "id": name} | ({"properties": {"status": status}} if status else {}),
    }
    assert [library.decision(body) for _ in range(3)] == [decision] * 3


def test_c_3_2_batches_with_properties(library: Server) -> None:
    archived = {"type": "record", "id": "record-2", "properties": {"status": "archived"}}
    by_resource = {
        "subject": READ["subject"],
        "action": {"name": "write"},
        "evaluations": [{"resource": {**RECORD, "properties": {"status": "active"}}}, {"resource": archived}],
    }
    assert decisions(library.answer(EVALUATIONS, by_resource)) == [True, False]  # C-3.2.3
    by_subject = {
        "action": {"name": "write"},
        "resource": archived,
        "evaluations": [
            {"subject": READ["subject"]},
            {"subject": {"type": "user", "id": "bob", "properties": {"role": "admin"}}},
        ],
    }
    assert decisions(library.answer(EVALUATIONS, by_subject)) == [False, True]  # C-3.2.4


def test_c_3_2_batches(library: Server) -> None:
    bob = {"type": "user", "id": "bob"}
    by_action = {
        "subject": bob,
        "resource": RECORD,
        "evaluations": [{"action": {"name": "read"}}, {"action": {"name": "write"}}],
    }
    assert decisions(library.answer(EVALUATIONS, by_action)) == [True, False]  # C-3.2.2
    whole = {"evaluations": [READ, {"subject": bob, "action": {"name": "write"}, "resource": RECORD}]}
    assert decisions(library.answer(EVALUATIONS, whole)) == [True, False]  # C-3.2.5
    override = {"time": "2025-06-27T19:00-07:00", "source": "batch-override"}
    contexts = {
        "subject": READ["subject"],
        "action": READ["action"],
        "context": {"time": "2025-06-27T18:03-07:00"},
        "evaluations": [
            {"resource": RECORD},
            {"resource": {"type": "record", "id": "record-2"}, "context": override},
        ],
    }
    assert decisions(library.answer(EVALUATIONS, contexts)) == [True, False]  # C-3.2.6


def test_c_3_2_7_what_a_part_lacks_comes_from_the_default(library: Server) -> None:
    body = {
        "subject": {"type": "user", "id": "alice"},
        "action": {"name": "write"},
        "resource": {"type": "record"},
        "evaluations": [
            {"resource": {"id": "record-1", "properties": {"status": "active"}}},
            {"resource": {"type": "record", "id": "record-2", "properties": {"status": "archived"}}},
        ],
    }
    assert decisions(library.answer(EVALUATIONS, body)) == [True, False]


def test_c_3_4_1_an_evaluation_that_lacks_something(library: Server) -> None:
    body = {"subject": READ["subject"], "action": READ["action"], "evaluations": [{"resource": RECORD}, {}]}
    assert decisions(library.answer(EVALUATIONS, body)) == [True, False]


def test_c_4_searches(library: Server) -> None:
    subjects = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": RECORD}
    found = library.answer(SEARCH + "subject", subjects)["results"]
    assert found == [{"type": "user", "id": "alice"}, {"type": "user", "id": "bob"}]  # C-4.2.1
    resources = {"subject": READ["subject"], "action": READ["action"], "resource": {"type": "record"}}
    assert library.answer(SEARCH + "resource", resources)["results"] == [RECORD]  # C-4.3.1
    actions = {"subject": READ["subject"], "resource": RECORD}
    assert library.answer(SEARCH + "action", actions)["results"] == [{"name": "read"}, {"name": "write"}]  # C-4.4.1


def test_c_4_searches_with_properties(library: Server) -> None:
    archived = {"type": "record", "id": "record-2", "properties": {"status": "archived"}}
    write = {"name": "write"}
    subjects = {"subject": {"type": "user"}, "action": write, "resource": archived}
    assert library.answer(SEARCH + "subject", subjects)["results"] == [{"type": "user", "id": "bob"}]  # C-4.2.4
    admin = {"type": "user", "id": "bob", "properties": {"role": "admin"}}
    resources = {"subject": admin, "action": write, "resource": {"type": "record"}}
    found = library.answer(SEARCH + "resource", resources)["results"]
    assert found == [{"type": "record", "id": "record-2"}]  # C-4.3.3
    found = library.answer(SEARCH + "action", {"subject": admin, "resource": archived})["results"]
    assert found == [write]  # C-4.4.3


def test_c_4_5_pages(library: Server) -> None:
    body: dict[str, Any] = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": RECORD}
    first = library.answer(SEARCH + "subject", {**body, "page": {"limit": 1}})
    assert first["results"] == [{"type": "user", "id": "alice"}]
    second = library.answer(SEARCH + "subject", {**body, "page": {"token": first["page"]["next_token"]}})
    assert second == {"page": {"next_token": "", "count": 1}, "results": [{"type": "user", "id": "bob"}]}


def test_c_4_6_unknown_names_have_no_results(library: Server) -> None:
    nobody = {"subject": {"type": "user", "id": "nonexistent-user"}, "resource": RECORD}
    assert library.answer(SEARCH + "action", nobody)["results"] == []
    ships = {"subject": {"type": "spaceship"}, "action": {"name": "read"}, "resource": RECORD}
    assert library.answer(SEARCH + "subject", ships)["results"] == []
    for kind, body in {
        "action": {"subject": READ["subject"], "resource": {"type": "spaceship", "id": "1"}},
        "resource": {**READ, "resource": {"type": "spaceship"}},
        "subject": {**READ, "resource": {"type": "spaceship", "id": "1"}},
    }.items():
        answer = library.answer(SEARCH + kind, body)
        assert answer["results"] == []
        assert "spaceship" in answer["context"]["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("subject", {"subject": {"type": "user"}, "resource": RECORD}),
        ("resource", {"action": {"name": "read"}, "resource": {"type": "record"}}),
        ("action", {"subject": {"type": "user", "id": "alice"}}),
        ("subject", {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": {"type": "record"}}),
        ("resource", {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": {"type": "record"}}),
    ],
)
def test_c_4_7_a_search_that_lacks_something(library: Server, kind: str, body: dict[str, Any]) -> None:
    assert library.post(SEARCH + kind, body).status_code == 400
