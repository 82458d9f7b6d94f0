"""Requests that name the active roles of their callers: allows and ownership narrow, denials stay, in every engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import requests as http
import worlds
from wasm_engine import WasmEngine

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.bundle import state_bundle
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts, policy_revision
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Assignment, Grant, State

POLICY = """
privtab: 1
system: office
version: '1'
entities: {site: {room: {desk:}}, role: }
privileges: {USE: , PAINT: , ENTER: {on: [site, room]}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, role]}, hierarchy: [roles], active_roles: request}
roles:
  porter: {scope: site, grants: {room: [ENTER]}}
tables:
  desk:
    use: USE (desk)
    paint: PAINT (desk)
    sell: owner (desk)
    list: {requires: ENTER (room), each: USE (desk)}
  room: {enter: ENTER (room)}
  role: {play: holds (role)}
"""
OWNERS_STAY = POLICY.replace("active_roles: request", "active_roles: request_grants")
PLAIN = POLICY.replace(", active_roles: request", "")


def allow(grantee: str, privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(grantee=grantee, effect=effect, privilege=privilege, entity=Entity.parse(entity))  # type: ignore[arg-type]


def assigned(principal: str, role: str, scope: str | None = None) -> Assignment:
    return Assignment(principal=principal, role=role, scope=None if scope is None else Entity.parse(scope))


STATE = State(
    memberships=(("ann", "staff"),),
    assignments=(
        assigned("user:ann", "clerk"),
        assigned("group:staff", "painter", "site:s"),
        assigned("user:ann", "chief", "site:s"),
        assigned("role:chief", "keeper", "room:s/r"),
        assigned("user:ann", "porter", "site:s"),
        assigned("user:ann", "barred"),
    ),
    grants=(
        allow("user:ann", "USE", "desk:s/r/own"),
        allow("group:staff", "USE", "desk:s/r/staff"),
        allow("role:clerk", "USE", "desk:s/r/clerk"),
        allow("role:painter", "PAINT", "site:s"),
        allow("role:keeper", "USE", "site:s"),
        allow("role:barred", "USE", "desk:s/r/own", "deny"),
        allow("role:barred", "PAINT", "desk:s/r/barred", "deny"),
    ),
    owners=((Entity("desk", "s/r/sold"), "role:clerk"),),
)


def loaded(text: str, folder: Path) -> Program:
    path = folder / "office.yaml"
    path.write_text(text, encoding="utf-8")
    return pipeline.load_program(path)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return loaded(POLICY, tmp_path_factory.mktemp("office"))


@pytest.fixture(scope="module")
def url(office: Program, opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bundles")
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(office).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(office, STATE))
    with OpaServer([folder / "policy.tar.gz", folder / "state.tar.gz"], binary=opa_binary) as server:
        yield f"{server.url}/v1/data/privtab/office"


def request(action: str, resource: str, *active: str, user: str = "ann") -> Request:
    return Request(user=user, action=action, resource=Entity.parse(resource), active_roles=active)


ALLOWED = [
    request("use", "desk:s/r/staff"),
    request("use", "desk:s/r/clerk", "clerk"),
    request("use", "desk:s/r/clerk", "role:clerk"),
    request("use", "desk:s/r/clerk", "chief"),
    request("use", "desk:s/r/clerk", "keeper"),
    request("paint", "desk:s/r/any", "painter"),
    request("enter", "room:s/r", "porter", "clerk"),
    request("list", "desk:s/r", "porter"),
    request("sell", "desk:s/r/sold", "clerk"),
    request("play", "role:clerk", "porter"),
    request("play", "role:keeper"),
]
DENIED = [
    request("use", "desk:s/r/clerk"),
    request("use", "desk:s/r/clerk", "painter"),
    request("use", "desk:s/q/any", "chief"),
    request("paint", "desk:s/r/any", "clerk"),
    request("paint", "desk:s/r/barred", "painter"),
    request("use", "desk:s/r/own"),
    request("use", "desk:s/r/own", "clerk"),
    request("enter", "room:s/r", "clerk"),
    request("use", "desk:s/r/staff", "nobody"),
    request("use", "desk:s/r/staff", "Clerk"),
    request("use", "desk:s/r/clerk", "clerk", user="ben"),
    request("sell", "desk:s/r/sold"),
    request("sell", "desk:s/r/sold", "painter"),
    request("sell", "desk:s/r/sold", "nobody"),
]


@pytest.mark.parametrize(
    ("user_request", "expected"), [*((r, True) for r in ALLOWED), *((r, False) for r in DENIED)], ids=str
)
def test_allows_and_ownership_narrow_and_denials_and_held_roles_stay(
    office: Program, user_request: Request, expected: bool
) -> None:
    artifacts = policy_artifacts(office)
    reference = Reference(office, STATE, artifacts.revision)
    engine = PythonEngine(artifacts.program, Index(index_document(office, STATE)))
    assert reference.decide(user_request).allowed is expected
    assert engine.allow(user_request) is expected
    assert engine.decide(user_request) == reference.decide(user_request)
    everything = replace(user_request, active_roles=None)
    assert reference.decide(everything).allowed or not expected, "naming active roles allows nothing more"


def test_a_policy_may_let_ownership_through_an_inactive_role_count(tmp_path: Path) -> None:
    program = loaded(OWNERS_STAY, tmp_path)
    artifacts = policy_artifacts(program)
    reference = Reference(program, STATE, artifacts.revision)
    engine = PythonEngine(artifacts.program, Index(index_document(program, STATE)))
    for user_request, expected in (
        (request("sell", "desk:s/r/sold"), True),
        (request("sell", "desk:s/r/sold", "painter"), True),
        (request("use", "desk:s/r/clerk"), False),
    ):
        assert reference.decide(user_request).allowed is expected
        assert engine.decide(user_request) == reference.decide(user_request)
    assert program_from_json(artifacts.program, "it").semantics.inactive_owners


def test_the_error_about_a_role_that_is_not_held_does_not_tell_whether_it_exists(office: Program) -> None:
    reference = Reference(office, STATE)
    [exists, unknown] = [
        reference.decide(request("use", "desk:s/r/staff", role, user="ben")).context for role in ("barred", "unheard")
    ]
    assert exists["missing"] == []
    assert exists["error"] == {
        "kind": "role_not_held",
        "message": "user:ben does not hold the active role(s) `barred`",
    }
    assert json.dumps(exists).replace("barred", "unheard") == json.dumps(unknown)
    assert "does not hold" in reference.decide(request("use", "desk:s/r/own", "x")).describe(request("use", "a:b"))


def test_opa_decides_so_in_every_form_of_a_question(office: Program, url: str) -> None:
    reference = Reference(office, STATE, policy_artifacts(office).revision)

    def ask(rule: str, body: Any) -> Any:
        return http.post(f"{url}/{rule}", json={"input": body}, timeout=10).json().get("result")

    requests = [*ALLOWED, *DENIED]
    sent = [sent_request.to_json() for sent_request in requests]
    assert ask("explained", {"requests": sent}) == [
        reference.decide(user_request).to_json() for user_request in requests
    ]
    assert ask("decisions", {"requests": sent}) == [True] * len(ALLOWED) + [False] * len(DENIED)
    items = {"action": {"name": "use"}, "resource": {"type": "desk"}}
    keys = [["site:s", "room:s/r", f"desk:s/r/{name}"] for name in ("clerk", "staff", "own")]
    pairs = [[user, key] for user in ("ann", "ben") for key in keys]
    for active in (["clerk"], [], ["nobody"]):
        body = {**items, "context": {"active_roles": active}}
        expected = [
            reference.decide(request("use", key[-1], *active, user=user)).allowed
            for user in ("ann", "ben")
            for key in keys
        ]
        assert ask("decisions", {**body, "items": pairs}) == expected
        seen = ask("visible", {**body, "subject": {"type": "user", "id": "ann"}, "items": keys})
        assert seen == [at for at, yes in enumerate(expected[:3]) if yes]


@pytest.mark.parametrize("value", ["clerk", None, 1, True, False, {}, [1], [""], [None], ["clerk", ""]])
def test_a_list_of_roles_that_is_none_denies_and_is_refused(office: Program, url: str, value: object) -> None:
    body = ALLOWED[0].to_json() | {"context": {"active_roles": value}}
    assert http.post(f"{url}/check", json={"input": body}, timeout=10).json()["result"] is False
    with pytest.raises(InvalidRequest, match="role"):
        vocabulary(office).check(Request.from_json(body))


def test_bad_names_and_too_many_are_refused(office: Program) -> None:
    for active, message in (
        ([""], "the name of an active role is empty"),
        (["*"], "`*` is not the name of a role: there are no wildcards"),
        ([f"r{number}" for number in range(1001)], "1,001 active roles; 1,000 is the most"),
    ):
        with pytest.raises(InvalidRequest, match=message.replace("*", r"\*")):
            vocabulary(office).check(request("use", "desk:s/r/own", *active))


def test_a_policy_without_them_ignores_them_and_has_the_same_bytes(tmp_path: Path) -> None:
    program = loaded(PLAIN, tmp_path)
    artifacts = policy_artifacts(program)
    assert not any("active_roles" in text for text in artifacts.modules.values())
    assert "brought" not in index_document(program, STATE)
    engine = PythonEngine(artifacts.program, Index(index_document(program, STATE)))
    user_request = request("use", "desk:s/r/clerk", "nobody")
    assert engine.allow(user_request)
    assert Reference(program, STATE).decide(user_request).allowed
    vocabulary(program).check(user_request)


def test_no_flag_has_their_name(tmp_path: Path) -> None:
    from privtab.base.errors import PolicyInvalid

    with pytest.raises(PolicyInvalid, match="`active_roles` cannot be a flag"):
        loaded(PLAIN.replace("paint: PAINT (desk)", "paint: PAINT (desk) when active_roles"), tmp_path)


def test_many_requests_at_once_are_decided_by_their_own_roles(office: Program) -> None:
    artifacts = policy_artifacts(office)
    engine = PythonEngine(artifacts.program, Index(index_document(office, STATE)))
    requests = [
        *ALLOWED,
        *DENIED,
        *(replace(user_request, active_roles=None) for user_request in (*ALLOWED, *DENIED)),
    ] * 30
    expected = [Reference(office, STATE).decide(user_request).allowed for user_request in requests]
    assert Batches(engine).allow_requests(requests) == expected == engine.allow_many(requests)
    assert Batches(engine).allow_requests([*requests, replace(requests[0], active_roles=("*",))]) is None


@pytest.mark.parametrize("number", [1, 2])
def test_engines_agree_in_generated_worlds(number: int) -> None:
    program = generated_programs.program(number, "active", "implies", "below", "hierarchy")
    state = worlds.state(program, number)
    artifacts = policy_artifacts(program)
    reference = Reference(program, state, artifacts.revision)
    engine = PythonEngine(artifacts.program, Index(index_document(program, state)))
    narrowed = 0
    for user_request in worlds.requests(program, number, 3):
        expected = reference.decide(user_request)
        assert engine.decide(user_request) == expected
        if user_request.active_roles is not None:
            everything = reference.decide(replace(user_request, active_roles=None)).allowed
            assert everything or not expected.allowed
            narrowed += everything and not expected.allowed
    assert narrowed


@pytest.mark.slow
def test_wasm_agrees(office: Program, opa_binary: Path) -> None:
    engine = WasmEngine(office, STATE, opa_binary)
    reference = Reference(office, STATE, policy_revision(office))
    requests = [*ALLOWED, *DENIED]
    assert engine.decide_many(requests) == [reference.decide(user_request) for user_request in requests]
    assert engine.allow_many(requests) == [True] * len(ALLOWED) + [False] * len(DENIED)
    desks = [Entity("desk", f"s/r/{name}") for name in ("clerk", "staff", "own")]
    for active in (("clerk",), (), ("nobody",)):
        listing = request("use", "desk:", *active)
        expected = [at for at, d in enumerate(desks) if reference.decide(replace(listing, resource=d)).allowed]
        assert engine.visible(listing, desks) == expected
