"""What comes in over the wire and is no good, and that it never ends in an allow."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from authzen_server import Server

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCHES = [f"/access/v1/search/{kind}" for kind in ("subject", "resource", "action")]
PATHS = [EVALUATION, EVALUATIONS, *SEARCHES]
ASKED = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "read"},
    "resource": {"type": "record", "id": "record-1"},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not JSON"),
        (b'{"subject": NaN}', "not JSON"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b'"text"', "must be an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
        (b'{"subject": {"type": "user", "id": "\xff"}}', "not UTF-8"),
        ("﻿{}".encode(), "not JSON"),
        (json.dumps(ASKED).encode("utf-16"), "not UTF-8"),
        (b'{"subject": {"type": "user", "id": "\\ud83d"}}', "surrogate"),
        (b'{"subject": {"type": "user", "id": "mallory"}, "subject": {"type": "user", "id": "alice"}}', "twice"),
        (b'{"subject": {"type": "user", "id": "mallory", "id": "alice"}}', "twice"),
    ],
    ids=range(15),
)
def test_a_body_that_is_no_json_object_is_a_bad_request(library: Server, path: str, body: bytes, says: str) -> None:
    response = library.post(path, data=body)
    assert response.status_code == 400
    assert says in response.text
    assert response.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
        ("application/jsonp", 400),
        ("", 400),
        ("application/json; charset=latin-1", 400),
    ],
)
def test_other_content_types_are_refused(library: Server, path: str, kind: str, status: int) -> None:
    assert library.post(path, ASKED, headers={"Content-Type": kind}).status_code == status


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"']
)
def test_spellings_of_json_are_taken(library: Server, kind: str) -> None:
    assert library.post(EVALUATION, ASKED, headers={"Content-Type": kind}).json()["decision"] is True


def test_compressed_bodies_are_refused(library: Server) -> None:
    assert library.post(EVALUATION, ASKED, headers={"Content-Encoding": "gzip"}).status_code == 415


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_only_posts_are_answered(library: Server, path: str, method: str) -> None:
    response = library.session.request(method, library.url + path, json=ASKED, timeout=20)
    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/", "/access/v1", EVALUATION + "/", "/access/v2/evaluation", "/other" + EVALUATION, "/docs", "//"]
)
def test_unknown_paths_are_not_found(library: Server, path: str) -> None:
    response = library.post(path, ASKED)
    assert response.status_code == 404
    assert response.headers["X-Request-ID"]


def test_a_huge_body_is_not_read(library: Server) -> None:
    body = json.dumps({**ASKED, "context": {"padding": "x" * 1_100_000}}).encode()
    assert library.post(EVALUATION, data=body).status_code == 413
    # Without a length, too.
    response = library.post(EVALUATION, data=(body[at : at + 65536] for at in range(0, len(body), 65536)))
    assert response.status_code == 413
    assert library.decision(ASKED)


def test_many_evaluations_are_bounded(library: Server) -> None:
    evaluation: dict[str, Any] = {}
    body = {**ASKED, "evaluations": [evaluation] * 10_000}
    answers = library.answer(EVALUATIONS, body)["evaluations"]
    assert len(answers) == 10_000
    assert all(answer["decision"] is True for answer in answers)
    body["evaluations"] = [evaluation] * 10_001
    assert library.post(EVALUATIONS, body).status_code == 400


@pytest.mark.parametrize(
    "change",
    [
        {"evaluations": {"0": ASKED}},
        {"evaluations": "all"},
        {"evaluations": None},
        {"options": {"evaluations_semantic": "allow_all"}},
        {"options": {"evaluations_semantic": None}},
        {"options": {"evaluations_semantic": ["execute_all"]}},
        {"options": "execute_all"},
        {"subject": "alice", "evaluations": [{}]},
        {"context": [], "evaluations": [{}]},
    ],
)
def test_a_message_that_is_wrong_as_a_whole_is_a_bad_request(library: Server, change: dict[str, Any]) -> None:
    assert library.post(EVALUATIONS, {**ASKED, **change}).status_code == 400


@pytest.mark.parametrize(
    "page", ["2", {"limit": -1}, {"limit": "2"}, {"limit": True}, {"limit": 1.5}, {"token": 3}, {"token": "no"}, None]
)
@pytest.mark.parametrize("path", SEARCHES)
def test_pages_that_are_none_are_bad_requests(library: Server, path: str, page: object) -> None:
    assert library.post(path, {**ASKED, "page": page}).status_code == 400


@pytest.mark.parametrize(
    "change",
    [
        {"subject": {"type": "group", "id": "alice"}},
        {"subject": {"type": "user", "id": ""}},
        {"action": {"name": "fly"}},
        {"action": {"name": ""}},
        {"resource": {"type": "spaceship", "id": "1"}},
        {"resource": {"type": "", "id": "1"}},
        {"resource": {"type": "record", "id": ""}},
        {"resource": {"type": "record", "id": "a/b"}},
        {"resource": {"type": "record", "id": "a%2"}},
        {"action": {"name": "copy"}, "resource": {"type": "page", "id": "f/one"}},
        {"context": {"with": "f"}},
        {"context": {"with": {"to": {"type": "folder"}}}, "action": {"name": "fly"}},
    ],
)
def test_names_that_the_policy_does_not_know_are_denied_with_an_error(library: Server, change: dict[str, Any]) -> None:
    body = {**ASKED, **change}
    answer = library.answer(EVALUATION, body)
    assert answer["decision"] is False
    error = answer["context"]["error"]
    assert (error["status"], error["kind"]) == (400, "invalid_request")
    assert error["message"]
    # One such request among others leaves those as they are.
    answers = library.answer(EVALUATIONS, {"evaluations": [ASKED, body, ASKED]})["evaluations"]
    assert [each["decision"] for each in answers] == [True, False, True]
    assert answers[1] == answer


def test_groups_of_a_request_are_ignored_where_the_state_has_groups(library: Server) -> None:
    for groups in (["staff"], "staff", 7, None):
        subject = {"type": "user", "id": "dan", "properties": {"groups": groups}}
        resource = {"type": "page", "id": "f/two"}
        assert not library.decision({"subject": subject, "action": {"name": "read"}, "resource": resource})


def test_further_objects_and_flags_come_in_the_context(library: Server) -> None:
    body: dict[str, Any] = {
        "subject": {"type": "user", "id": "dan"},
        "action": {"name": "copy"},
        "resource": {"type": "page", "id": "f/one"},
        "context": {"with": {"to": {"type": "folder", "id": "f"}}, "time": "1985-10-26T01:22-07:00"},
    }
    assert library.decision(body)
    body["context"]["replace"] = True
    assert not library.decision(body)
    body["context"]["replace"] = False
    assert library.decision(body)
    for actions in ({"results"}, {"results", "page"}):
        answer = library.answer("/access/v1/search/action", body)
        assert actions <= set(answer)
    assert [result["name"] for result in library.answer("/access/v1/search/action", body)["results"]] == [
        "copy",
        "create",
        "read",
    ]
    del body["context"]
    # Without the object there is no such question.
    assert [result["name"] for result in library.answer("/access/v1/search/action", body)["results"]] == [
        "create",
        "read",
    ]


def test_a_call_that_names_no_item(library: Server) -> None:
    body = {
        "subject": {"type": "user", "id": "carol"},
        "action": {"name": "list"},
        "resource": {"type": "page", "id": "f"},
    }
    assert library.decision(body)
    assert not library.decision({**body, "resource": {"type": "page", "id": "f/secret"}})


def test_an_operation_open_to_anyone_is_marked(library: Server) -> None:
    body = {"subject": {"type": "user"}, "action": {"name": "open"}, "resource": {"type": "folder", "id": "f"}}
    answer = library.answer("/access/v1/search/subject", body)
    assert answer["context"] == {"anyone": True}
    assert {"type": "user", "id": "carol"} in answer["results"]
    assert not any("nobody" in result["id"] for result in answer["results"])


def test_a_subject_who_is_the_object_is_found(library: Server) -> None:
    body = {"subject": {"type": "user"}, "action": {"name": "greet"}, "resource": {"type": "reader", "id": "zoe"}}
    answer = library.answer("/access/v1/search/subject", body)
    assert answer["results"] == [{"type": "user", "id": "zoe"}]
    assert "context" not in answer


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 1000, 10**9])
def test_pages_put_together_are_the_whole(library: Server, limit: int) -> None:
    body: dict[str, Any] = {"subject": {"type": "user"}, "action": {"name": "open"}}
    body["resource"] = {"type": "folder", "id": "f"}
    whole = library.answer("/access/v1/search/subject", body)["results"]
    assert len(whole) == 7
    found: list[Any] = []
    page: dict[str, Any] = {"limit": limit}
    for _ in range(8):
        answer = library.answer("/access/v1/search/subject", {**body, "page": page})
        assert answer["page"]["count"] == len(answer["results"]) <= limit
        found += answer["results"]
        page = {"token": answer["page"]["next_token"]}
        if not page["token"]:
            break
    assert found == (whole if limit else [])


def test_health_and_readiness(library: Server) -> None:
    assert library.get("/health").json() == {"status": "ok"}
    assert library.get("/ready").json() == {"ready": True, "systems": {"library": True}}
    assert library.session.head(library.url + "/health", timeout=20).status_code == 200


# --- on the socket itself ------------------------------------------------------------------------------------------------


def connect(server: Server) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=20)


def head(length: int | str, *more: str) -> bytes:
    lines = [f"POST {EVALUATION} HTTP/1.1", "Host: pdp", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def test_a_large_content_length_is_refused_before_the_body(library: Server) -> None:
    with connect(library) as connection:
        connection.sendall(head(10**12))
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_clients_that_hang_up_leave_nothing_behind(library: Server) -> None:
    for _ in range(20):
        with connect(library) as connection:
            connection.sendall(head(100) + b'{"subject"')
    assert library.decision(ASKED)
    assert library.process.poll() is None


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", head("many"), head(-1)])
def test_invalid_http_is_refused(library: Server, sent: bytes) -> None:
    with connect(library) as connection:
        connection.sendall(sent)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")


@pytest.mark.slow
def test_a_body_that_does_not_come_ends(library: Server) -> None:
    started = time.monotonic()
    with connect(library) as connection:
        connection.sendall(head(100) + b"{")
        with connection.makefile("rb") as reading:
            assert reading.read().startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < 15


def test_ids_in_the_log_are_one_line_each(library: Server) -> None:
    name = 'a"b\\c{}\té'.encode("latin-1")
    library.post(EVALUATION, ASKED, headers={"X-Request-ID": name})
    until = time.monotonic() + 10
    # The line is written when the answer is on its way.
    while not any(line["request_id"] == name.decode("latin-1") for line in logged(library)):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert any(line["outcome"] == "allow" and line["status"] == 200 for line in logged(library))


def logged(server: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
