"""The vectors of the AuthZEN working group's interoperability scenarios, sent as they are: to the server, and to OPA.

From github.com/openid/authzen: `interop/authzen-todo-backend/test/decisions-1.1-preview.json` (Todo) and
`interop/authzen-api-gateways/test-harness/test/decisions.json` (API gateway).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests as http
from authzen_server import Server, start
from checkout import ROOT

from privtab import pipeline
from privtab.engines import OpaServer
from privtab.state import index_document, load_raw_state, validate

EXAMPLE = ROOT / "examples" / "authzen"
PEOPLE = {
    "rick@the-citadel.com": ("CiRmZDA2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "TTTTTTTT", "TTTTT"),
    "morty@the-citadel.com": ("CiRmZDE2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "TTTTFTFT", "TTTTT"),
    "summer@the-smiths.com": ("CiRmZDI2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "TTTTFTFT", "TTTTT"),
    "beth@the-smiths.com": ("CiRmZDM2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "TTTFFFFF", "TTFFF"),
    "jerry@the-smiths.com": ("CiRmZDQ2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs", "TTTFFFFF", "TTFFF"),
}
"""By address: the id of the subject, what is expected of the application, and of the gateway."""
ROUTES = ("GET /users/{userId}", "GET /todos", "POST /todos", "PUT /todos/{todoId}", "DELETE /todos/{todoId}")


def vectors() -> Iterator[tuple[dict[str, Any], bool]]:
    """Each request with the expected decision."""
    for address, (id_, application, gateway) in PEOPLE.items():
        own = "morty@the-citadel.com" if address.startswith("rick") else address
        asked = [("can_read_user", "user", "beth@the-smiths.com", ""), ("can_read_user", "user", address, "")]
        asked += [(name, "todo", "todo-1", "") for name in ("can_read_todos", "can_create_todo")]
        asked += [
            (name, "todo", "7240d0db-8ff0-41ec-98b2-34a096273b9f", owner)
            for name in ("can_update_todo", "can_delete_todo")
            for owner in ("rick@the-citadel.com", own)
        ]
        for (name, type_, resource, owner), expected in zip(asked, application, strict=True):
            yield request("user", id_, name, type_, resource, owner), expected == "T"
        for route, expected in zip(ROUTES, gateway, strict=True):
            method, path = route.split()
            yield request("identity", id_, method, "route", path), expected == "T"


def request(subject: str, id_: str, action: str, type_: str, resource: str, owner: str = "") -> dict[str, Any]:
    properties = {"properties": {"ownerID": owner}} if owner else {}
    return {
        "subject": {"type": subject, "id": id_},
        "action": {"name": action},
        "resource": {"type": type_, "id": resource, **properties},
    }


@pytest.fixture(scope="module")
def todo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    arguments: list[str | Path] = ["-p", EXAMPLE / "todo.yaml", "-s", EXAMPLE / "todo.state.yaml"]
    server = start(arguments, tmp_path_factory.mktemp("served"))
    yield server
    assert server.stop() == 0


def test_the_server_decides_every_vector_as_expected(todo: Server) -> None:
    bodies, expected = zip(*vectors(), strict=True)
    assert len(bodies) == 65
    assert [todo.decision(body) for body in bodies] == list(expected)
    boxcarred = todo.answer("/access/v1/evaluations", {"evaluations": bodies})
    assert [answer["decision"] for answer in boxcarred["evaluations"]] == list(expected)


def test_opa_decides_every_vector_as_expected(opa_binary: Path, tmp_path: Path) -> None:
    program = pipeline.load_program(EXAMPLE / "todo.yaml")
    bundle = tmp_path / "policy.tar.gz"
    bundle.write_bytes(pipeline.policy_artifacts(program).bundle())
    state = index_document(program, validate(program, load_raw_state(EXAMPLE / "todo.state.yaml"))[0])
    bodies, expected = zip(*vectors(), strict=True)
    with OpaServer([bundle], binary=opa_binary) as server, http.Session() as session:
        session.put(f"{server.url}/v1/data/privtab_state/todo", json=state, timeout=30).raise_for_status()
        answers = [
            session.post(f"{server.url}/v1/data/privtab/todo/allow", json={"input": body}, timeout=30)
            for body in bodies
        ]
    assert [answer.json()["result"] for answer in answers] == list(expected)


def test_searches_answer_in_the_spelling_of_requests(todo: Server) -> None:
    morty = PEOPLE["morty@the-citadel.com"][0]
    put = {"subject": {"type": "identity", "id": morty}, "action": {"name": "PUT"}, "resource": {"type": "route"}}
    assert todo.answer("/access/v1/search/resource", put)["results"] == [{"type": "route", "id": "/todos/{todoId}"}]
    delete = {"subject": {"type": "identity"}, "action": {"name": "DELETE"}}
    delete["resource"] = {"type": "route", "id": "/todos/{todoId}"}
    found = todo.answer("/access/v1/search/subject", delete)["results"]
    allowed = sorted(id_ for id_, _, gateway in PEOPLE.values() if gateway == "TTTTT")
    assert found == [{"type": "identity", "id": id_} for id_ in allowed]


@pytest.mark.parametrize(
    ("subject", "resource"), [("service", "/todos"), ("Identity", "/todos"), ("identity", "/a%2Fb"), ("identity", "*")]
)
def test_what_is_not_understood_is_denied_with_an_error(todo: Server, subject: str, resource: str) -> None:
    rick = PEOPLE["rick@the-citadel.com"][0]
    answer = todo.answer("/access/v1/evaluation", request(subject, rick, "GET", "route", resource))
    assert answer["decision"] is False
    assert answer["context"]["error"]["kind"] == "invalid_request"
