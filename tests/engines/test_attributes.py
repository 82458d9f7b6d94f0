"""Attributes that requests give: every engine decides as the reference, absent values deny, and wrong ones are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests as http
import worlds
from engine_agreement import World, ask, differences, put_state, serving

from privtab.base.attributes import GivenAttributes
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.bundle import state_bundle
from privtab.client.embedded import Embedded
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import AttributeRow, Grant, State

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [SELECT, SHARE]
semantics: {inheritance: down, deny: overrides}
attributes:
  user:
    department: {text: true, from: request}
    badges: {set: [red, blue], from: request}
    rank: {integer: [0, 9], from: request}
  entity:
    department: {text: true, on: [table], from: request}
    color: {enum: [red, blue, gray], on: [schema, table], from: request}
    rank: {integer: [0, 9], on: [table], from: request}
  request: {mfa: bool}
tables:
  schema: {open: SELECT (schema) and entity.color = red}
  table:
    read: SELECT (table) and user.department = entity.department
    export: can read (table) and request.mfa
    paint: SELECT (table) and entity.color in user.badges
    promote: SELECT (table) and user.rank > entity.rank
    move: {with: {to: schema}, requires: SELECT (table) and can open (to) and to.color = entity.color}
    deep: SELECT (table) and can open (schema)
    list: {requires: "SELECT (schema) and entity.color in {red, gray}", each: SELECT (table)}
"""
STATE = State(
    grants=(
        Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("catalog", "c")),
        Grant(grantee="user:ann", effect="deny", privilege="SELECT", entity=Entity("table", "c/s/secret")),
    )
)


def request_for(action: str, table: str = "c/s/t", to: str | None = None, **attributes: Any) -> Request:
    with_ = {"to": Entity("schema", to)} if to else {}
    return Request(
        user="ann",
        action=action,
        resource=Entity("table", table),
        with_=with_,
        attributes=GivenAttributes(**attributes),
    )


HR = {"department": "hr"}
RED = {"color": "red"}
CASES = [
    (request_for("read", user=HR, entity=HR), True),
    (request_for("read", user=HR, entity={"department": "it"}), False),
    (request_for("read", user=HR), False),
    (request_for("read", entity=HR), False),
    (request_for("read"), False),
    (request_for("read", "c/s/secret", user=HR, entity=HR), False),
    (request_for("export", user=HR, entity=HR, request={"mfa": True}), True),
    (request_for("export", user=HR, entity=HR, request={"mfa": False}), False),
    (request_for("export", user=HR, entity=HR), False),
    (request_for("paint", user={"badges": ["red"]}, entity=RED), True),
    (request_for("paint", user={"badges": []}, entity=RED), False),
    (request_for("promote", user={"rank": 3}, entity={"rank": 2}), True),
    (request_for("promote", user={"rank": 2}, entity={"rank": 2}), False),
    (request_for("promote", user={"rank": 2}), False),
    (request_for("move", to="c/r", entity=RED, with_={"to": RED}), True),
    (request_for("move", to="c/r", entity=RED), False),
    (request_for("move", to="c/r", with_={"to": RED}), False),
    # A request gives attributes of its objects, not of what contains them, whatever it calls them.
    (request_for("deep", entity=RED), False),
    # A call that names no table gives no attributes of one.
    (request_for("list", "c/s/t", entity=RED), True),
    (request_for("list", "c/s", entity=RED), False),
]


@pytest.fixture(scope="module")
def world(opa_binary: Path) -> Iterator[tuple[str, World]]:
    with serving([POLICY], opa_binary) as (url, [world]):
        with http.Session() as session:
            put_state(session, url, world.program, STATE)
        yield url, world


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case[0].to_json())[40:])
def test_reference_and_python(world: tuple[str, World], case: tuple[Request, bool]) -> None:
    request, allowed = case
    program = world[1].program
    expected = Reference(program, STATE, world[1].artifacts.revision).decide(request)
    engine = PythonEngine(world[1].artifacts.program, Index(index_document(program, STATE)))
    assert expected.allowed == allowed
    assert (engine.decide(request), engine.allow(request)) == (expected, allowed)
    assert Request.from_json(request.to_json(), vocabulary(program)) == request


def test_opa_agrees(world: tuple[str, World]) -> None:
    with http.Session() as session:
        assert differences(session, world[0], world[1], STATE, [request for request, _ in CASES]) == []


def test_columns_are_not_for_requests_with_attributes(world: tuple[str, World]) -> None:
    engine = PythonEngine(world[1].artifacts.program, Index(index_document(world[1].program, STATE)))
    many = [request for request, _ in CASES] * 60
    assert engine.allow_many(many) == [allowed for _, allowed in CASES] * 60
    assert engine.batches().allow_requests([request_for("read")]) == [False]


def in_input(request: Request, change: Mapping[str, Any]) -> dict[str, Any]:
    body = request.to_json()
    for where, value in change.items():
        *path, last = where.split("/")
        part = body
        for key in path:
            part = part.setdefault(key, {})
        part[last] = value
    return body


WRONG = [
    {"subject/properties/department": 3},
    {"subject/properties/department": None},
    *({"subject/properties/department": f"h{character}r"} for character in ("\n", "\0", "\x85", "\u2028", "\uffff")),
    {"resource/properties/color": "green"},
    {"subject/properties/badges": "red"},
    {"subject/properties/badges": ["green"]},
    {"subject/properties/rank": "3"},
    {"subject/properties/rank": 3.5},
    {"subject/properties/rank": 10},
    {"subject/properties/rank": True},
    {"context/mfa": "yes"},
    {"context/mfa": 1},
    {"context/with/to/properties/color": 1},
    {"context/with/to": {"type": "table", "id": "c/s/t", "properties": {"department": "other"}}},
]


@pytest.mark.parametrize("change", WRONG, ids=json.dumps)
def test_wrong_values_are_refused(world: tuple[str, World], change: dict[str, Any]) -> None:
    """Also those of attributes that the operation does not compare."""
    request = request_for("read", to="c/r", user=HR, entity=HR)
    body = in_input(request, change)
    with http.Session() as session:
        assert ask(session, world[0], "lake", "allow", request.to_json()) is True
        assert ask(session, world[0], "lake", "allow", body) is False
        assert ask(session, world[0], "lake", "decisions", {"requests": [body]}) == [False]
    reference = Reference(world[1].program, STATE)
    with pytest.raises(InvalidRequest, match="attribute"):
        reference.decide(Request.from_json(body, vocabulary(world[1].program)))


def test_undeclared_properties_are_ignored(world: tuple[str, World]) -> None:
    body = in_input(
        request_for("read", user=HR, entity=HR),
        {"subject/properties/shoe": [3], "resource/properties/rank": 3, "context/elsewhere": {"a": 1}},
    )
    request = Request.from_json(body, vocabulary(world[1].program))
    assert request.attributes == GivenAttributes(user=HR, entity=HR | {"rank": 3})
    assert Reference(world[1].program, STATE).decide(request).allowed
    with http.Session() as session:
        assert ask(session, world[0], "lake", "allow", body) is True


def test_the_client_takes_attributes_and_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "lake.yaml").write_text(POLICY, encoding="utf-8")
    program = load_program(tmp_path / "lake.yaml")
    artifacts = policy_artifacts(program)
    bundle = tmp_path / "lake.tar.gz"
    bundle.write_bytes(artifacts.bundle())
    state = tmp_path / "state.tar.gz"
    state.write_bytes(state_bundle(program, STATE))
    with Embedded(bundle, state) as client:
        attributes = {"user": HR, "entity": HR}
        assert client.check("ann", "read", "table:c/s/t", attributes=attributes)
        assert not client.check("ann", "read", "table:c/s/t")
        assert client.check_many([request_for("read", user=HR, entity=HR), request_for("read")]) == [True, False]
        for wrong, message in (
            ({"user": {"departement": "hr"}}, "unknown attribute `departement` of the user; did you mean `department`"),
            ({"user": {"rank": "high"}}, "the attribute `rank` of the user must be a whole number from 0 to 9"),
            ({"usr": {}}, "unknown kind `usr` of attributes; did you mean `user`"),
            ({"user": 3}, "it must be a mapping of values"),
            ({"with": {"to": {"color": "red"}}}, "attributes of `to`, and no object of this name"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                client.check("ann", "read", "table:c/s/t", attributes=wrong)


LEVELS = """
privtab: 1
system: levels
version: "1"
entities: {catalog: {folder: {page: }}}
types: {folder: {nested: true}}
attributes:
  entity: {managed: {bool: true, on: [folder]}}
  request: {mode: {enum: [read, list], default: read}}
tables:
  page:
    every: every folder.managed = false
    any: any folder.managed
    first: first folder.managed
    near: folder.managed
    read: request.mode = read
    list: request.mode in {list}
"""
MANAGED = {"c/a": "true", "c/a/b": "false", "c/x": "false"}
ON_LEVELS = {
    "c/a/b/p": {"any", "first", "read"},
    "c/a/p": {"any", "first", "near", "read"},
    "c/x/p": {"every", "read"},
    "c/x/y/p": {"read"},
    "c/a/b/z/p": {"any", "first", "read"},
}
"""By page, what is allowed: a folder without a value is not false, either."""


def test_levels_and_defaults(opa_binary: Path) -> None:
    rows = (AttributeRow(entity=Entity("folder", f), attribute="managed", value=v) for f, v in MANAGED.items())
    state = State(attributes=tuple(rows))
    asked = [
        (Request(user="ann", action=action, resource=Entity("page", page)), action in allowed)
        for page, allowed in ON_LEVELS.items()
        for action in ("every", "any", "first", "near", "read", "list")
    ]
    listing = GivenAttributes(request={"mode": "list"})
    asked += [(replace(request, attributes=listing), request.action == "list") for request, _ in asked[4:6]]
    with serving([LEVELS], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, state)
        reference = Reference(world.program, state)
        assert [reference.decide(request).allowed for request, _ in asked] == [allowed for _, allowed in asked]
        assert differences(session, url, world, state, [request for request, _ in asked]) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
        assert engine.allow_many([request for request, _ in asked] * 40) == [allowed for _, allowed in asked] * 40


def test_policies_without_attributes_ignore_what_others_declare() -> None:
    body = in_input(request_for("read", user=HR, entity=HR), {"context/mfa": True})
    assert Request.from_json(body) == Request(
        user="ann", action="read", resource=Entity("table", "c/s/t"), flags=frozenset({"mfa"})
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_part_of_every_decision_is_the_references(seed: int, opa_binary: Path) -> None:
    assert compare(seed, opa_binary)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_every_part_of_decisions_in_many_worlds(seed: int, search_seed: int, opa_binary: Path) -> None:
    compare(search_seed + seed, opa_binary)


def compare(seed: int, opa_binary: Path) -> int:
    """Compare engines with the reference in a generated world; how many decisions an attribute allowed."""
    beside = ((), worlds.FEATURES, ("nested",), ("nested", "implies"))[seed % 4]
    by_attribute = 0
    policy = worlds.policy(seed, features=("attributes", *beside))
    with serving([policy], opa_binary) as (url, [world]), http.Session() as session:
        for turn in range(seed * 10, seed * 10 + 2):
            state = worlds.state(world.program, turn)
            requests = worlds.requests(world.program, turn, 6)
            assert differences(session, url, world, state, requests) == []
            reference = Reference(world.program, state, world.artifacts.revision)
            engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
            for request in requests:
                expected = reference.decide(request)
                assert (engine.decide(request), engine.allow(request)) == (expected, expected.allowed), request
                by_attribute += any(reason["through"] == "attribute" for reason in expected.reasons)
    return by_attribute
