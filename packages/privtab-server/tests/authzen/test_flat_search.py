"""Searches over entities with flat ids: they come from the table `entities`, also those that no grant mentions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from privtab.base import Entity, Request
from privtab.bundle import state_bundle
from privtab.client import Embedded
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_analysis.explanation import explain
from privtab_analysis.principals import who_can
from privtab_server.authzen.messages import SearchKind
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document: {comment:}}}}
types: {folder: {nested: true, flat: true}, document: {flat: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides}
tables:
  folder: {list: {requires: READ (folder), each: READ (folder)}}
  document: {read: READ (document), write: WRITE (document), ping: anyone}
  comment: {read: READ (comment)}
"""
STATE = {
    "entities": [
        {"entity": "folder:f1", "parent": "drive:main"},
        {"entity": "folder:f2", "parent": "folder:f1"},
        {"entity": "document:d1", "parent": "folder:f2"},
        {"entity": "document:d2", "parent": "folder:f1"},
        {"entity": "document:d3", "parent": "folder:f2"},
    ],
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "folder:f2"},
        {"grantee": "user:bob", "effect": "allow", "privilege": "READ", "entity": "drive:main"},
        {"grantee": "user:ann", "effect": "deny", "privilege": "READ", "entity": "document:d3"},
        {"grantee": "group:eu", "effect": "allow", "privilege": "READ", "entity": "folder:f1"},
    ],
    "memberships": [{"user": "cy", "group": "eu"}],
}


@pytest.fixture
def engine(tmp_path: Path) -> Embedded:
    path = tmp_path / "drives.yaml"
    path.write_text(POLICY, encoding="utf-8")
    program = load_program(path)
    state, found = validate(program, from_tables(STATE, "state"))
    assert not found
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, state))
    return Embedded(tmp_path, mode="enforce")


def search(engine: Embedded, kind: SearchKind, request: Request) -> list[Any]:
    answer = asyncio.run(Service(LocalDecisionPoint(engine), page_size=100).search(kind, request.to_json()))
    return [result.get("id", result.get("name")) for result in answer["results"]]


def read(user: str, document: str = "d1", action: str = "read") -> Request:
    return Request(user=user, action=action, resource=Entity("document", document))


def test_resources_are_those_that_the_state_places(engine: Embedded) -> None:
    assert search(engine, SearchKind.RESOURCE, read("ann")) == ["d1"]
    assert search(engine, SearchKind.RESOURCE, read("bob")) == ["d1", "d2", "d3"]
    assert search(engine, SearchKind.RESOURCE, read("nobody", action="ping")) == ["d1", "d2", "d3"]
    folders = Request(user="ann", action="list", resource=Entity("folder", "f1"))
    assert search(engine, SearchKind.RESOURCE, folders) == ["f2"]


def test_subjects_and_actions(engine: Embedded) -> None:
    assert search(engine, SearchKind.SUBJECT, read("ann")) == ["ann", "bob", "cy"]
    assert search(engine, SearchKind.SUBJECT, read("ann", "d3")) == ["bob", "cy"]
    assert search(engine, SearchKind.SUBJECT, read("ann", "d9")) == []
    assert search(engine, SearchKind.ACTION, read("ann")) == ["ping", "read"]
    assert search(engine, SearchKind.ACTION, read("ann", "d9")) == []


def test_questions_follow_a_moved_entity(tmp_path: Path) -> None:
    path = tmp_path / "drives.yaml"
    path.write_text(POLICY, encoding="utf-8")
    program = load_program(path)
    state, _ = validate(program, from_tables(STATE, "state"))
    reference = Reference(program, state)
    assert set(who_can(reference, state, read("x")).users) == {"ann", "bob", "cy"}
    assert set(who_can(reference, state, read("x", "d3")).users) == {"bob", "cy"}
    nowhere = who_can(reference, state, read("x", "d9", "ping"))
    assert not nowhere.anyone
    assert not nowhere.users
    allowed = explain(reference, read("ann"), state)
    assert [part.on for parts in allowed.sets for part in parts] == ["folder:f2"]
    denied = explain(reference, read("ann", "d2"), state)
    assert denied.turns
    assert explain(reference, read("ann", "d9", "ping"), state).turns == ()
