"""Types with flat ids: entities that the state places decide as the reference says, others are denied in every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, differences, serving
from wasm_engine import WasmEngine

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

DRIVES = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document: {comment:, settings:}}}}
types: {folder: {NESTED flat: true}, document: {flat: true}, settings: {single: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  folder:
    create: {requires: WRITE (parent), creates: true}
    list: {requires: READ (folder), each: READ (folder)}
  document:
    read: READ (document)
    greet: anyone
    create: {requires: WRITE (folder), creates: true}
    move: {with: {to: folder}, requires: WRITE (document) and WRITE (to)}
    seize: owner (folder) or owner (document)
  comment:
    read: READ (comment)
    create: {requires: WRITE (document), creates: true, becomes: owner}
    greet: anyone
  settings:
    change: WRITE (settings)
"""
TABLES = {
    "entities": [
        {"entity": "folder:f1", "parent": "drive:main"},
        {"entity": "folder:f9", "parent": "folder:f1", "name": "Plans"},
        {"entity": "document:d7", "parent": "folder:f9"},
        {"entity": "document:d8", "parent": "folder:f1"},
    ],
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "folder:f1"},
        {"grantee": "user:ann", "effect": "deny", "privilege": "READ", "entity": "document:d8"},
        {"grantee": "user:bob", "effect": "allow", "privilege": "WRITE", "entity": "drive:main"},
        {"grantee": "role:editor", "effect": "allow", "privilege": "READ", "entity": "drive:main"},
        {"grantee": "user:cy", "effect": "allow", "privilege": "READ", "entity": "comment:d7/c1"},
    ],
    "assignments": [{"principal": "user:dee", "role": "editor", "scope": "folder:f9"}],
    "owners": [{"entity": "folder:f9", "owner": "user:eve"}],
}
FLAT = [
    *TABLES["entities"][:1],
    {"entity": "folder:f9", "parent": "drive:main"},
    *TABLES["entities"][2:],
]
USERS = ("ann", "bob", "cy", "dee", "eve")
ASKED = [
    ("folder", "create", "folder:drive:main/"),
    ("folder", "list", "folder:f9"),
    ("document", "read", "document:d7"),
    ("document", "read", "document:d8"),
    ("document", "read", "document:d9"),
    ("document", "greet", "document:d7"),
    ("document", "greet", "document:d9"),
    ("document", "create", "document:folder:f9/"),
    ("document", "create", "document:folder:f99/"),
    ("document", "create", "document:d9"),
    ("document", "seize", "document:d7"),
    ("comment", "read", "comment:d7/c1"),
    ("comment", "read", "comment:d9/c1"),
    ("comment", "greet", "comment:d9/c1"),
    ("comment", "create", "comment:d7"),
    ("comment", "create", "comment:d9"),
    ("settings", "change", "settings:d7"),
    ("settings", "change", "settings:d9"),
]


def text(*, nested: bool) -> str:
    return DRIVES.replace("NESTED", "nested: true," if nested else "")


@pytest.fixture(params=[False, True], ids=["fixed", "nested"])
def nested(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def program(nested: bool, tmp_path: Path) -> Program:
    path = tmp_path / "drives.yaml"
    path.write_text(text(nested=nested), encoding="utf-8")
    return pipeline.load_program(path)


@pytest.fixture
def state(program: Program, nested: bool) -> State:
    state, found = validate(program, from_tables(TABLES if nested else {**TABLES, "entities": FLAT}, "test"))
    assert not [f for f in found if f.severity == "error"], found
    return state


def questions(*, nested: bool) -> list[Request]:
    more = [("folder", "create", "folder:folder:f1/")] if nested else []
    requests = [
        Request(user=user, action=action, resource=Entity.parse(resource))
        for user in USERS
        for _, action, resource in (*ASKED, *more)
    ]
    moved = [
        Request(user="bob", action="move", resource=Entity("document", d), with_={"to": Entity("folder", f)})
        for d in ("d7", "d9")
        for f in ("f1", "f99")
    ]
    return requests + moved


def test_the_place_decides_and_decisions_name_flat_ids(program: Program, state: State) -> None:
    reference = Reference(program, state)

    def decide(user: str, action: str, resource: str) -> dict[str, object]:
        decision = reference.decide(Request(user=user, action=action, resource=Entity.parse(resource)))
        return {"decision": decision.allowed, **decision.context}

    assert decide("dee", "read", "document:d7")["reasons"] == [
        {"atom": "READ (document:d7)", "on": "drive:main", "through": "role:editor"}
    ]
    assert not decide("dee", "read", "document:d8")["decision"]
    assert decide("ann", "read", "document:d8")["missing"] == [["deny READ (document:d8) to user:ann"]]
    assert decide("bob", "create", "comment:d7/c2")["effects"] == ["become owner (comment:d7/c2)"]
    assert decide("bob", "create", "document:folder:f9/")["decision"]
    assert decide("bob", "change", "settings:d7")["decision"]
    assert decide("eve", "seize", "document:d7")["decision"]


def test_an_unplaced_entity_is_denied_to_everyone(program: Program, state: State) -> None:
    reference, engine = Reference(program, state), python(program, state)
    for resource, key in (("document:d9", "document:d9"), ("comment:d9/c1", "document:d9")):
        request = Request(user="bob", action="greet", resource=Entity.parse(resource))
        for found in (reference.decide(request), engine.decide(request)):
            assert not found.allowed
            assert found.context["error"] == {
                "kind": "not_placed",
                "message": f"no row of the state tells where `{key}` lies",
            }
            assert found.missing == ()
            assert f"no row of the state tells where `{key}` lies" in found.describe(request)
        assert not engine.allow(request)


@pytest.mark.parametrize(
    "resource",
    [
        "document:main/f1/f9/d7",
        "document:",
        "document:f9/",
        "document:drive:main/",
        "document:folder:f9//",
        "document:folder:drive:main//",
        "document:d*/",
        "comment:d7/c1/x",
        "comment:",
        "document:*",
    ],
)
def test_other_spellings_are_invalid(resource: str, program: Program, state: State) -> None:
    action = "create" if resource != "comment:d7/c1/x" else "read"
    with pytest.raises(InvalidRequest):
        Reference(program, state).decide(Request(user="bob", action=action, resource=Entity.parse(resource)))


def python(program: Program, state: State) -> PythonEngine:
    return PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))


def test_the_python_engine_agrees(program: Program, state: State, nested: bool) -> None:
    revision = policy_artifacts(program).revision
    reference, engine = Reference(program, state, revision), python(program, state)
    requests = questions(nested=nested)
    expected = [reference.decide(request).to_json() for request in requests]
    assert [engine.decide(request).to_json() for request in requests] == expected
    assert [engine.allow(request) for request in requests] == [e["decision"] for e in expected]
    assert 10 < sum(e["decision"] for e in expected) < len(expected) - 10
    folders = [Entity("folder", f) for f in ("f1", "f9", "f99")]
    listing = Request(user="ann", action="list", resource=Entity("folder", "f1"))
    assert engine.visible(listing, folders) == ([0, 1] if nested else [0])


def test_columns_agree(program: Program, state: State, nested: bool) -> None:
    reference, batches = Reference(program, state), Batches(python(program, state))
    for user in USERS:
        ids = ["d7", "d8", "d9", "main/d7", "a//b", None]
        answers = batches.decide_columns([user] * len(ids), ids, action="read", type="document")
        expected = [
            reference.decide(Request(user=user, action="read", resource=Entity("document", str(i)))).allowed
            for i in ids[:3]
        ]
        assert answers.allowed.tolist() == [*expected, False, False, False]
        assert (answers.reasons != 0).tolist() == [False, False, False, True, True, True]


def test_opa_agrees(nested: bool, program: Program, state: State, opa_binary: Path) -> None:
    with serving([text(nested=nested)], opa_binary) as (url, [world]), http.Session() as session:
        assert not differences(session, url, world, state, questions(nested=nested))
        for resource in ("document:main/f1/f9/d7", "document:drive:main/", "document:", "document:folder:f9//"):
            entity = Entity.parse(resource)
            body = Request(user="bob", action="create", resource=entity).to_json()
            assert ask(session, url, "drives", "allow", body) is False
            assert ask(session, url, "drives", "decision", body)["context"]["error"]["kind"] == "invalid_request"


@pytest.mark.slow
def test_wasm_agrees(nested: bool, program: Program, state: State, opa_binary: Path) -> None:
    artifacts = policy_artifacts(program)
    engine = WasmEngine(program, state, opa_binary)
    reference = Reference(program, state, artifacts.revision)
    requests = questions(nested=nested)
    expected = [reference.decide(request).to_json() for request in requests]
    assert [decision.to_json() for decision in engine.decide_many(requests)] == expected
    assert engine.allow_many(requests) == [e["decision"] for e in expected]
