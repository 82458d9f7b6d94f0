"""The examples of the OpenID AuthZEN Authorization API 1.0, section by section, over a socket.

Bodies are the specification's own, for a policy that has its accounts and documents. What it leaves to implementations
(`properties`, the content of `context`) is passed along and makes no difference here. C-… are
sections of its certification scenario, whose other parts are in `test_certification.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from authzen_server import Server

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCH = "/access/v1/search/"

ALICE = {"type": "user", "id": "alice@example.com"}
RECORD = {"type": "record", "id": "record-1"}
READ = {"subject": {"type": "user", "id": "alice"}, "action": {"name": "read"}, "resource": RECORD}


def documents(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"resource": {"type": "document", "id": name}, **more} for name in names]


def decisions(answer: Any) -> list[bool]:
    assert set(answer) == {"evaluations"}
    assert all(isinstance(evaluation.get("context", {}), dict) for evaluation in answer["evaluations"])
    return [evaluation["decision"] for evaluation in answer["evaluations"]]


# --- §5 Information Model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "action", "resource", "decision"),
    [
        ({"type": "user", "id": "alice@example.com"}, "can_read", {"type": "account", "id": "123"}, True),
        ({**ALICE, "properties": {"department": "Sales"}}, "can_read", {"type": "account", "id": "123"}, True),
        (
            {**ALICE, "properties": {"ip_address": "172.217.22.14", "device_id": "8:65:ee:17:7e:0b"}},
            "can_read",
            {"type": "account", "id": "123"},
            True,
        ),
        (ALICE, "extend_loan", {"type": "book", "id": "123"}, False),
        (
            ALICE,
            "extend_loan",
            {
                "type": "book",
                "id": "123",
                "properties": {"library_record": {"title": "AuthZEN in Action", "isbn": "978-0593383322"}},
            },
            False,
        ),
    ],
)
def test_5_subjects_actions_and_resources(
    library: Server, subject: dict[str, Any], action: str, resource: dict[str, Any], decision: bool
) -> None:
    for properties in ({}, {"properties": {"period": "2W"}}):
        body = {"subject": subject, "action": {"name": action, **properties}, "resource": resource}
        assert library.decision(body) is decision


# --- §6 Access Evaluation ----------------------------------------------------------------------------------------------


def test_6_1_an_evaluation(library: Server) -> None:
    body = {
        "subject": ALICE,
        "resource": {"type": "account", "id": "123"},
        "action": {"name": "can_read", "properties": {"method": "GET"}},
        "context": {"time": "1985-10-26T01:22-07:00"},
    }
    assert library.answer(EVALUATION, body)["decision"] is True
    body["subject"] = {"type": "user", "id": "mallory@example.com"}
    assert library.answer(EVALUATION, body)["decision"] is False


def test_5_5_1_a_denial_says_why_in_its_context(library: Server) -> None:
    body = {"subject": ALICE, "resource": {"type": "account", "id": "456"}, "action": {"name": "can_write"}}
    answer = library.answer(EVALUATION, body)
    assert answer["decision"] is False
    assert answer["context"]["rule"] == "library/account/can_write"
    assert answer["context"]["missing"] == [["WRITE (account:456)"]]
    sentence = "user:alice@example.com may not `can_write` on account:456; missing: WRITE (account:456)"
    assert answer["context"]["reason_admin"] == {"en": sentence}, "the sentence of AccessDenied"
    allowed = library.answer(EVALUATION, {**body, "action": {"name": "can_read"}})
    assert "reason_admin" not in allowed["context"]
    assert allowed["context"]["reasons"] == [
        {"atom": "READ (account:456)", "on": "account:456", "through": "user:alice@example.com"}
    ]


# --- §7 Access Evaluations ---------------------------------------------------------------------------------------------


def test_7_1_no_default_values(library: Server) -> None:
    names = ("boxcarring.md", "subject-search.md", "resource-search.md")
    more = {"subject": ALICE, "action": {"name": "can_read"}, "context": {"time": "2024-05-31T15:22-07:00"}}
    answer = library.answer(EVALUATIONS, {"evaluations": documents(*names, **more)})
    assert decisions(answer) == [True, True, True]


def test_7_1_1_default_values(library: Server) -> None:
    names = ("boxcarring.md", "subject-search.md", "resource-search.md")
    body = {
        "subject": ALICE,
        "context": {"time": "2024-05-31T15:22-07:00"},
        "evaluations": documents(*names, action={"name": "can_read"}),
    }
    assert decisions(library.answer(EVALUATIONS, body)) == [True, True, True]


def test_7_1_1_a_default_value_is_overridden(library: Server) -> None:
    body = {
        "subject": ALICE,
        "context": {"time": "2024-05-31T15:22-07:00"},
        "action": {"name": "can_read"},
        "evaluations": [
            *documents("boxcarring.md", "subject-search.md"),
            *documents("resource-search.md", action={"name": "can_edit"}),
        ],
    }
    assert decisions(library.answer(EVALUATIONS, body)) == [True, True, False]


def test_7_1_2_other_options_are_ignored(library: Server) -> None:
    body = {
        "evaluations": [{"resource": {"type": "doc", "id": "1"}, "subject": {"type": "doc", "id": "2"}}],
        "options": {"evaluations_semantic": "execute_all", "another_option": "value"},
    }
    # The specification's example has no action: an error of that evaluation.
    (answer,) = library.answer(EVALUATIONS, body)["evaluations"]
    assert answer["decision"] is False
    assert answer["context"]["error"]["message"] == "`action` is missing"


@pytest.mark.parametrize(
    ("semantic", "expected"),
    [
        ("execute_all", [True, False, True]),
        ("deny_on_first_deny", [True, False]),
        ("permit_on_first_permit", [True]),
        (None, [True, False, True]),
    ],
)
def test_7_1_2_1_evaluations_semantics(library: Server, semantic: str | None, expected: list[bool]) -> None:
    body = {"subject": ALICE, "action": {"name": "read"}, "evaluations": documents("1", "2", "3")}
    if semantic is not None:
        body["options"] = {"evaluations_semantic": semantic}
    answer = library.answer(EVALUATIONS, body)
    assert decisions(answer) == expected
    last = answer["evaluations"][-1]["context"]
    assert last.get("reason") == (semantic if semantic == "deny_on_first_deny" else None)


def test_7_1_2_1_permit_on_first_permit_goes_on_after_denials(library: Server) -> None:
    body = {
        "subject": ALICE,
        "action": {"name": "read"},
        "options": {"evaluations_semantic": "permit_on_first_permit"},
        "evaluations": documents(*["2"] * 30, "1", "3"),
    }
    assert decisions(library.answer(EVALUATIONS, body)) == [False] * 30 + [True]


@pytest.mark.parametrize("semantic", ["deny_on_first_deny", "permit_on_first_permit"])
def test_7_1_2_1_a_failure_is_a_denial(library: Server, semantic: str) -> None:
    body = {
        "subject": ALICE,
        "action": {"name": "read"},
        "options": {"evaluations_semantic": semantic},
        "evaluations": [{"resource": {"type": "document"}}, *documents("1", "3")],
    }
    assert decisions(library.answer(EVALUATIONS, body)) == ([False] if semantic.startswith("deny") else [False, True])


def test_7_2_1_errors_of_single_evaluations_deny_them_alone(library: Server) -> None:
    body = {
        "subject": ALICE,
        "action": {"name": "can_read"},
        "evaluations": [
            *documents("1"),
            {"resource": {"type": "spaceship", "id": "1"}},
            {"resource": "document:1"},
            "not an object",
            *documents("2"),
        ],
    }
    answer = library.answer(EVALUATIONS, body)
    assert decisions(answer) == [True, False, False, False, False]
    errors = [evaluation["context"].get("error", {}).get("kind") for evaluation in answer["evaluations"]]
    assert errors == [None, "invalid_request", "malformed", "malformed", None]


@pytest.mark.parametrize("more", [{}, {"evaluations": []}])
def test_7_1_without_evaluations_it_is_a_single_one(library: Server, more: dict[str, Any]) -> None:
    """Also C-3.4.2 and C-3.4.3."""
    answer = library.answer(EVALUATIONS, {**READ, **more})
    assert answer["decision"] is True
    assert "evaluations" not in answer


# --- §8 Search -----------------------------------------------------------------------------------------------------------


def test_8_1_searches_are_transitive(library: Server) -> None:
    """Carol reads by a role that her group has, on the folder above."""
    body = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": {"type": "page", "id": "f/one"}}
    assert library.answer(SEARCH + "subject", body)["results"] == [
        {"type": "user", "id": "carol"},
        {"type": "user", "id": "dan"},
    ]


def test_8_2_pages(library: Server) -> None:
    body: dict[str, Any] = {
        "subject": ALICE,
        "action": {"name": "can_read"},
        "resource": {"type": "account"},
        "page": {"limit": 2},
    }
    first = library.answer(SEARCH + "resource", body)
    assert first["results"] == [{"type": "account", "id": "123"}, {"type": "account", "id": "456"}]
    assert first["page"]["count"] == 2
    token = first["page"]["next_token"]
    assert token
    # The second request of the specification leaves the limit off.
    for page in ({"token": token}, {"token": token, "limit": 2}):
        second = library.answer(SEARCH + "resource", {**body, "page": page})
        assert second == {"page": {"next_token": "", "count": 1}, "results": [{"type": "account", "id": "789"}]}


@pytest.mark.parametrize(
    "change",
    [
        {"subject": {"type": "user", "id": "bob@example.com"}},
        {"action": {"name": "can_write"}},
        {"resource": {"type": "document"}},
        {"context": {"time": "now"}},
        {"page": {"limit": 3}},
        {"page": {"properties": {"sort": "name"}}},
        {"page": {"token": "a3M9NDU2O3N6PTI="}},
        {"page": {"token": "☃"}},
    ],
)
def test_8_2_a_token_goes_with_the_search_that_it_is_of(library: Server, change: dict[str, Any]) -> None:
    body: dict[str, Any] = {
        "subject": ALICE,
        "action": {"name": "can_read"},
        "resource": {"type": "account"},
        "page": {"limit": 2},
    }
    token = library.answer(SEARCH + "resource", body)["page"]["next_token"]
    page = {"token": token, "limit": 2, **change.get("page", {})}
    assert library.post(SEARCH + "resource", {**body, **change, "page": page}).status_code == 400


def test_8_4_subject_search(library: Server) -> None:
    body = {
        "subject": {"type": "user"},
        "action": {"name": "can_read"},
        "resource": {"type": "account", "id": "123"},
        "context": {"time": "2024-10-26T01:22-07:00"},
    }
    expected = [{"type": "user", "id": "alice@example.com"}, {"type": "user", "id": "bob@example.com"}]
    assert library.answer(SEARCH + "subject", body)["results"] == expected
    body["subject"]["id"] = "ignored"
    assert library.answer(SEARCH + "subject", body)["results"] == expected


def test_8_5_resource_search(library: Server) -> None:
    body = {"subject": ALICE, "action": {"name": "can_read"}, "resource": {"type": "account"}}
    expected = [{"type": "account", "id": path} for path in ("123", "456", "789")]
    assert library.answer(SEARCH + "resource", body)["results"] == expected
    body["resource"] = {"type": "account", "id": "ignored"}
    assert library.answer(SEARCH + "resource", body)["results"] == expected


def test_8_6_action_search(library: Server) -> None:
    body = {
        "subject": ALICE,
        "resource": {"type": "account", "id": "123"},
        "context": {"time": "2024-10-26T01:22-07:00"},
    }
    assert library.answer(SEARCH + "action", body)["results"] == [{"name": "can_read"}, {"name": "can_write"}]


def test_8_1_what_is_found_is_allowed(library: Server) -> None:
    """A result, put into an evaluation, is permitted; what is not found is not."""
    for user in ("alice", "carol", "dan", "erin"):
        for operation in ("read", "write", "list"):
            type_ = "record" if operation == "write" else "page"
            body = {
                "subject": {"type": "user", "id": user},
                "action": {"name": operation},
                "resource": {"type": type_},
            }
            found = [result["id"] for result in library.answer(SEARCH + "resource", body)["results"]]
            names = {"page": ["f/one", "f/two", "f/secret"], "record": ["record-1", "record-2"]}[type_]
            for name in names:
                assert library.decision({**body, "resource": {"type": type_, "id": name}}) is (name in found)


# --- §9 Metadata ---------------------------------------------------------------------------------------------------------


def test_9_metadata(library: Server) -> None:
    """Also C-6, but for TLS."""
    response = library.get("/.well-known/authzen-configuration")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    assert response.json() == {
        "policy_decision_point": library.url,
        "access_evaluation_endpoint": f"{library.url}/access/v1/evaluation",
        "access_evaluations_endpoint": f"{library.url}/access/v1/evaluations",
        "search_subject_endpoint": f"{library.url}/access/v1/search/subject",
        "search_resource_endpoint": f"{library.url}/access/v1/search/resource",
        "search_action_endpoint": f"{library.url}/access/v1/search/action",
    }


def test_9_2_metadata_of_one_of_several(library: Server) -> None:
    document = library.get("/.well-known/authzen-configuration/library").json()
    assert document["policy_decision_point"] == f"{library.url}/library"
    response = library.session.post(document["access_evaluation_endpoint"], json=READ, timeout=20)
    assert response.json()["decision"] is True
    assert library.get("/.well-known/authzen-configuration/other").status_code == 404


# --- §10 Transport -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [EVALUATION, EVALUATIONS, SEARCH + "subject", SEARCH + "resource", SEARCH + "action"])
def test_10_1_3_the_request_id_comes_back(library: Server, path: str) -> None:
    """Also C-2.5."""
    name = "bfe9eb29-ab87-4ca3-be83-a1d5d8305716"
    assert library.post(path, READ, headers={"X-Request-ID": name}).headers["X-Request-ID"] == name
    assert library.post(path, {}, headers={"X-Request-ID": name}).headers["X-Request-ID"] == name
    assert library.post(path, READ).headers["X-Request-ID"] != library.post(path, READ).headers["X-Request-ID"]


def test_10_1_1_unknown_fields_are_ignored(library: Server) -> None:
    """Also C-2.2.9."""
    assert library.decision({**READ, "foo": "bar", "futureField": {"nested": True}})


def test_10_1_1_a_missing_attribute_is_a_bad_request(library: Server) -> None:
    """Also C-2.4.1, C-2.4.2 and C-2.4.6: the error is a message."""
    wrong: list[dict[str, Any]] = [{k: v for k, v in READ.items() if k != part} for part in READ]
    wrong += [
        {**READ, "subject": {"id": "alice"}},
        {**READ, "subject": {"type": "user"}},
        {**READ, "action": {}},
        {**READ, "resource": {"id": "record-1"}},
        {**READ, "resource": {"type": "record"}},
        {**READ, "subject": "alice"},
        {**READ, "action": {"name": 123}},
        {**READ, "action": None},
        {**READ, "resource": ["record", "record-1"]},
        {**READ, "context": "now"},
        {**READ, "subject": {"type": "user", "id": "alice", "properties": "Sales"}},
        {},
    ]
    for body in wrong:
        for path in (EVALUATION, EVALUATIONS):
            response = library.post(path, body)
            assert response.status_code == 400, body
            assert response.text
            assert "decision" not in response.text
