"""Attributes that the state holds: every engine decides as the reference, also by those of what contains an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import requests as http
import worlds
from engine_agreement import World, ask, differences, differences_at, put_state, serving, sharded_document
from seeds import seeds
from whole_states import merged

from privtab.base.attributes import GivenAttributes
from privtab.base.errors import InvalidRequest
from privtab.base.moments import ALWAYS, FIRST, Window
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index, combined_document
from privtab.engines.kernel import in_columns
from privtab.engines.python import PythonEngine, WindowedIndex
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document, without_revision
from privtab.state.nodes import Assignment, AttributeRow, Grant, State
from privtab.state.shards import parts, shards

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [SELECT]
semantics: {inheritance: down}
attributes:
  user:
    department: text
    rank: {integer: [0, 9], from: [state, request]}
    badges: {set: [public, secret]}
  entity:
    department: {text: true, on: [table]}
    class: {enum: [public, secret], on: [schema, table], from: [state, request]}
tables:
  table:
    read: SELECT (table) and user.department = entity.department
    browse: SELECT (table) and schema.class = public
    open: SELECT (table) and entity.class in user.badges
    promote: SELECT (table) and user.rank > 2
    list: {requires: "schema.class = public", each: "entity.class = public"}
    share: {with: {to: schema}, requires: SELECT (table) and to.class = entity.class}
"""


def value(name: str, text: str, user: str | None = None, entity: str | None = None) -> AttributeRow:
    return AttributeRow(user=user, entity=entity and Entity.parse(entity), attribute=name, value=text)  # type: ignore[arg-type]


STATE = State(
    grants=(Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=Entity("catalog", "c")),),
    attributes=(
        value("department", "hr", user="ann"),
        value("rank", "3", user="ann"),
        value("badges", "secret", user="ann"),
        value("department", "hr", entity="table:c/s/t"),
        value("class", "public", entity="schema:c/s"),
        value("class", "secret", entity="table:c/s/t"),
    ),
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


CASES = [
    (request_for("read"), True),
    (request_for("read", "c/s/other"), False),
    (request_for("browse"), True),
    (request_for("browse", "c/r/t"), False),
    # A request gives attributes of its object, not of what contains it.
    (request_for("browse", "c/r/t", entity={"class": "public"}), False),
    (request_for("open"), True),
    (request_for("open", entity={"class": "public"}), False),
    (request_for("open", "c/s/other", entity={"class": "secret"}), True),
    (request_for("promote"), True),
    (request_for("promote", user={"rank": 2}), False),
    (request_for("promote", user={"rank": 9}), True),
    (request_for("list", "c/s"), True),
    (request_for("list", "c/r"), False),
    (request_for("list"), False),
    (request_for("list", entity={"class": "public"}), True),
    (request_for("share", to="c/s"), False),
    (request_for("share", to="c/s", with_={"to": {"class": "secret"}}), True),
]


@pytest.fixture(scope="module")
def world(opa_binary: Path) -> Iterator[tuple[str, World]]:
    with serving([POLICY], opa_binary) as (url, [world]):
        with http.Session() as session:
            put_state(session, url, world.program, STATE)
        yield url, world


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].action} {case[0].resource.id} {case[0].attributes}")
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


def test_many_requests_at_once(world: tuple[str, World]) -> None:
    engine = PythonEngine(world[1].artifacts.program, Index(index_document(world[1].program, STATE)))
    assert engine.allow_many([request for request, _ in CASES] * 60) == [allowed for _, allowed in CASES] * 60
    plain = [(request, allowed) for request, allowed in CASES if not request.attributes]
    assert len(plain) > 6
    found = engine.batches().allow_requests([request for request, _ in plain] * 60)
    assert found == [allowed for _, allowed in plain] * 60


def test_columns_decide_by_values_in_the_state(world: tuple[str, World]) -> None:
    engine = PythonEngine(world[1].artifacts.program, Index(index_document(world[1].program, STATE)))
    for request, _ in CASES:
        assert in_columns(engine.plan(replace(request, attributes=GivenAttributes.NONE)))


def test_requests_give_only_what_the_policy_takes_from_them(world: tuple[str, World]) -> None:
    request = request_for("read", "c/s/other", entity={"department": "hr"})
    with pytest.raises(InvalidRequest, match="`department` of `table` comes from the state"):
        Reference(world[1].program, STATE).decide(request)
    read = Request.from_json(request.to_json(), vocabulary(world[1].program))
    assert read == request_for("read", "c/s/other")
    with http.Session() as session:
        assert ask(session, world[0], "lake", "allow", request.to_json()) is False
        body = request_for("read", user={"department": 3}).to_json()
        assert ask(session, world[0], "lake", "allow", body) is True


def test_active_roles_narrow_grants_and_leave_attributes() -> None:
    program = load_program(
        SourceFile.of("lake.yaml", POLICY.replace("{inheritance: down}", "{inheritance: down, active_roles: request}"))
    )
    grant = Grant(grantee="role:reader", effect="allow", privilege="SELECT", entity=Entity("catalog", "c"))
    assignments = (Assignment(principal="user:ann", role="reader"), Assignment(principal="user:ann", role="other"))
    state = replace(STATE, grants=(grant,), assignments=assignments)
    reference, engine = (
        Reference(program, state),
        PythonEngine(policy_artifacts(program).program, Index(index_document(program, state))),
    )
    cases: list[tuple[tuple[str, ...] | None, dict[str, bool]]] = [
        (None, {"read": True, "browse": True, "list": True}),
        (("reader",), {"read": True, "browse": True, "list": True}),
        (("other",), {"read": False, "browse": False, "list": True}),
        ((), {"read": False, "browse": False, "list": True}),
        (("admin",), {"read": False, "browse": False, "list": False}),
    ]
    for active_roles, expected in cases:
        for action, allowed in expected.items():
            request = replace(request_for(action, "c/s" if action == "list" else "c/s/t"), active_roles=active_roles)
            assert (reference.decide(request).allowed, engine.allow(request)) == (allowed, allowed), request


def test_parts_of_a_sharded_state_are_the_whole() -> None:
    program = load_program(SourceFile.of("lake.yaml", POLICY))
    timed = Grant(grantee="user:ben", effect="allow", privilege="SELECT", entity=Entity("catalog", "d"))
    further = replace(STATE, attributes=(*STATE.attributes, value("class", "public", entity="schema:e/s")))
    for state in (
        STATE,
        further,
        replace(further, grants=(*STATE.grants, timed), windows={"grants": (ALWAYS, Window(1, 2))}),
    ):
        found = parts(program, without_revision(program, state))
        assert merged(found) == index_document(program, state)
    # A root entity with attributes alone has a shard.
    assert sorted(shards(program, further)) == ["catalog:c", "catalog:e", "people"]


@pytest.mark.parametrize("windows", [False, True])
def test_sharded_states(opa_binary: Path, windows: bool) -> None:
    state = replace(
        STATE,
        grants=(
            *STATE.grants,
            Grant(grantee="user:ben", effect="allow", privilege="SELECT", entity=Entity("catalog", "c")),
        ),
        attributes=(
            *STATE.attributes,
            value("class", "public", entity="schema:e/s"),
            value("class", "public", entity="table:e/s/t"),
        ),
        windows={"grants": (ALWAYS, Window(FIRST, 4_102_444_800_000_000_000))} if windows else {},
    )
    requests = [request for request, _ in CASES]
    requests += [
        request_for("list", "e/s/t"),
        request_for("share", "c/s/t", to="e/s"),
        request_for("share", "e/s/t", to="e/s"),
    ]
    requests += [request_for("browse", "f/s/t"), request_for("list", "f/s")]
    with serving([POLICY], opa_binary, sharded=True) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, state, sharded=True)
        assert differences_at(session, url, world, state, requests, 1 if windows else None) == []
    now = state.at(1) if windows else state
    reference = Reference(world.program, now, world.artifacts.revision)
    document = sharded_document(world.program, state)
    indexes = (
        [WindowedIndex.of(Index(document)).at(1)]
        if windows
        else [Index(document), Index(combined_document([document])[0])]
    )
    for index_of_state in indexes:
        engine = PythonEngine(world.artifacts.program, index_of_state)
        assert [engine.decide(r).allowed for r in requests] == [reference.decide(r).allowed for r in requests]


@pytest.mark.parametrize("seed", seeds(range(40), quick=2))
def test_generated_states_in_parts(seed: int) -> None:
    program = generated_programs.program(seed, "attributes", *worlds.SHARDED)
    state = worlds.state(program, seed)
    whole = index_document(program, state)
    assert merged(parts(program, without_revision(program, state))) == whole
    asked_ = worlds.requests(program, seed, 4)
    artifacts = policy_artifacts(program).program
    engines = [
        PythonEngine(artifacts, index_of_state)
        for index_of_state in (Index(whole), Index(sharded_document(program, state)))
    ]
    answers = [[(d.allowed, d.reasons, d.missing) for d in map(engine.decide, asked_)] for engine in engines]
    assert answers[0] == answers[1]
