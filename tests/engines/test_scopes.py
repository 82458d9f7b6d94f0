"""A role whose `scope` is one of several types: what it gives is what a role for each of the types gives, in each engine and exact tool."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import requests as http
from engine_agreement import differences, put_state, serving
from generated_programs import read

from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State
from privtab_analysis import who_can
from privtab_analysis.diff import diff

ONE = "developer: {scope: [group, project], grants: {group: [READ], project: [READ, WRITE]}}"
TWO = (
    "group_developer: {scope: group, grants: {group: [READ], project: [READ, WRITE]}}, "
    "project_developer: {scope: project, grants: {project: [READ, WRITE]}}"
)
ASSIGNED = [
    {"principal": "user:ann", "role": "developer", "scope": "group:x/g"},
    {"principal": "user:ben", "role": "developer", "scope": "project:x/g/p"},
    {"principal": "role:lead", "role": "developer", "scope": "project:x/h/q"},
    {"principal": "user:cem", "role": "lead"},
]
ENTITIES = [Entity("group", "x/g"), *(Entity("project", path) for path in ("x/g/p", "x/g/o", "x/h/q"))]
ALLOWED = {
    ("push", "project:x/g/p"): ["ann", "ben"], ("push", "project:x/g/o"): ["ann"], ("push", "project:x/h/q"): ["cem"],
    ("see", "group:x/g"): ["ann"],
}  # fmt: skip
USERS = ("ann", "ben", "cem", "dan")


def text(roles: str) -> str:
    return (
        "privtab: 1\nsystem: forge\nversion: '1'\nentities: {site: {group: {project: }}}\n"
        "semantics: {hierarchy: roles}\nprivileges: [READ, WRITE]\n"
        f"roles: {{{roles}}}\n"
        "tables: {group: {see: READ (group)}, project: {see: READ (project), push: WRITE (project)}}\n"
    )


def program(roles: str = ONE) -> Program:
    found, diagnostics = read(text(roles))
    assert found is not None, diagnostics
    return found


def state_for(of: Program, assigned: list[dict[str, str]]) -> State:
    return validate(of, from_tables({"assignments": assigned}, "state"), notes=False)[0]


def requests() -> list[Request]:
    pairs = [
        (operation, e) for e in ENTITIES for operation in ("see", "push") if (operation, e.type) != ("push", "group")
    ]
    return [Request(user=user, action=action, resource=entity) for (action, entity), user in product(pairs, USERS)]


def as_two_roles() -> list[dict[str, str]]:
    kinds = [(row, row.get("scope", "").partition(":")[0]) for row in ASSIGNED]
    return [row | {"role": f"{kind}_developer"} if row["role"] == "developer" else row for row, kind in kinds]


def test_it_gives_what_a_role_for_each_type_gives(opa_binary: Path) -> None:
    of, asked = program(), requests()
    state = state_for(of, ASSIGNED)
    assert len(state.assignments) == len(ASSIGNED)
    two = program(TWO)
    with serving([text(ONE)], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, of, state)
        reference, other = Reference(of, state), Reference(two, state_for(two, as_two_roles()))
        expected = [reference.decide(request).allowed for request in asked]
        assert expected == [other.decide(request).allowed for request in asked]
        given = [
            (r.user in ALLOWED[key], answer)
            for r, answer in zip(asked, expected, strict=True)
            if (key := (r.action, str(r.resource))) in ALLOWED
        ]
        assert all(user == answer for user, answer in given)
        assert differences(session, url, world, state, asked) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(of, state)))
        assert engine.allow_many(asked * 40) == expected * 40


@pytest.mark.parametrize(("action", "key"), ALLOWED)
def test_those_who_hold_it_can(action: str, key: str) -> None:
    of = program()
    state = state_for(of, ASSIGNED)
    request = Request(user="", action=action, resource=next(e for e in ENTITIES if str(e) == key))
    assert list(who_can(Reference(of, state), state, request).users) == ALLOWED[action, key]


def test_its_json() -> None:
    document = program_json(program())
    assert document["roles"]["developer"]["scope"] == ["group", "project"]
    assert program_from_json(document, "program").roles["developer"].scopes == ("group", "project")
    assert program_json(program(TWO))["roles"]["group_developer"]["scope"] == "group"


@pytest.mark.parametrize(
    ("row", "code", "message"),
    [
        ({}, "S150", "role `developer` is assigned for one `group` or `project`, and no scope is given"),
        (
            {"scope": "site:x"},
            "S151",
            "`site:x` is not a scope for role `developer`: it must be a `group` or `project`",
        ),
    ],
)
def test_rows_with_another_scope_are_refused(row: dict[str, str], code: str, message: str) -> None:
    _, found = validate(
        program(), from_tables({"assignments": [{"principal": "user:ann", "role": "developer"} | row]}, "state")
    )
    assert [(one.code, one.message) for one in found if one.code.startswith("S15")] == [(code, message)]


@pytest.mark.parametrize(
    ("holder", "inherits"), [("project", True), ("[project, group]", True), ("[site, project]", False)]
)
def test_a_role_within_its_scopes_holds_it_without_a_scope(holder: str, inherits: bool) -> None:
    of = program(f"{ONE}, lead: {{scope: {holder}, grants: {{}}}}")
    row = {"principal": "role:lead", "role": "developer"}
    assert len(state_for(of, [row]).assignments) == inherits


def test_more_scopes_are_wider() -> None:
    of = program()
    old, new = (
        diff(program(ONE.replace("[group, project]", "project")), of),
        diff(of, program(ONE.replace("[group, project]", "group"))),
    )
    assert [change.verdict.value for change in (*old.declared, *new.declared)] == ["wider", "narrower"]
    assert diff(of, program(ONE.replace("group, project", "project, group"))).declared == ()


def test_scopes_are_types_of_the_file() -> None:
    found, diagnostics = read(text(ONE.replace("[group, project]", "[group, projct]")))
    assert found is None
    assert [d.code for d in diagnostics] == ["P102"]
