"""The group of every user: everybody has what it has, known to the state or not, with denials, scopes, groups of groups and active roles."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, differences, put_state, serving

from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.python import LazyShortcuts, PythonEngine
from privtab.language import syntax
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Assignment, Grant, State

POLICY = """
privtab: 1
system: everyone
version: "1"
entities: {lake: {schema: {table: }, group: }}
privileges: [READ, WRITE, SHARE]
semantics:
  inheritance: down
  deny: overrides
  owner: {kinds: [user, group]}
  hierarchy: [groups, roles]
  everyone: all users
roles: {helper: {scope: schema, grants: {table: [SHARE]}}}
tables:
  table: {read: READ (table), write: WRITE (table), share: SHARE (table), drop: owner (table)}
  group: {look: member (group)}
"""
EVERYONE = "group:all users"


def grant(grantee: str, privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(grantee=grantee, privilege=privilege, entity=Entity.parse(entity), effect=effect)  # type: ignore[arg-type]


STATE = State(
    grants=(
        grant(EVERYONE, "READ", "schema:l/s"),
        grant("group:staff", "READ", "table:l/s/secret", "deny"),
        grant("group:people", "WRITE", "table:l/s/notes"),
        grant("role:cleaner", "WRITE", "table:l/s/bin"),
    ),
    memberships=(("eve", "staff"), (EVERYONE, "people")),
    assignments=(
        Assignment(principal=EVERYONE, role="cleaner"),
        Assignment(principal=EVERYONE, role="helper", scope=Entity("schema", "l/s")),
    ),
    owners=((Entity("table", "l/s/free"), EVERYONE),),
)
ALLOWED = {
    "read": {"l/s/secret": {"ann", "stranger"}, "l/s/notes": {"ann", "eve", "stranger"}, "l/r/t": set()},
    "write": {"l/s/notes": {"ann", "eve", "stranger"}, "l/s/bin": {"ann", "eve", "stranger"}, "l/s/secret": set()},
    "share": {"l/s/t": {"ann", "eve", "stranger"}, "l/r/t": set()},
    "drop": {"l/s/free": {"ann", "eve", "stranger"}, "l/s/t": set()},
}
ASKED = [
    (Request(user=user, action=action, resource=Entity("table", table)), user in allowed)
    for action, tables in ALLOWED.items()
    for table, allowed in tables.items()
    for user in ("ann", "eve", "stranger")
] + [
    (Request(user=user, action="look", resource=Entity("group", f"l/{group}")), user == "eve" or group != "staff")
    for group in ("all users", "people", "staff")
    for user in ("eve", "stranger")
]


@pytest.mark.parametrize("groups", ["state", "request", "[state, request]"])
def test_every_engine_counts_it(groups: str, opa_binary: Path) -> None:
    text = POLICY.replace("everyone: all", f"groups: {groups}\n  everyone: all")
    expected = [allowed for _, allowed in ASKED]
    if groups == "request":  # memberships of users in groups do not count, those of groups do
        of_eve = {("read", "l/s/secret"): True, ("look", "l/staff"): False}
        expected = [of_eve.get((r.action, r.resource.id), a) if r.user == "eve" else a for r, a in ASKED]
    asked = [request for request, _ in ASKED]
    with serving([text], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, STATE)
        reference = Reference(world.program, STATE)
        assert [reference.decide(request).allowed for request in asked] == expected
        assert differences(session, url, world, STATE, asked) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, STATE)))
        assert [engine.allow(request) for request in asked] == expected
        assert engine.allow_many(asked * 40) == expected * 40
        for nobody in ("", "*", "?"):
            body = asked[0].to_json() | {"subject": {"type": "user", "id": nobody}}
            assert ask(session, url, "everyone", "allow", body) is False


def test_shortcuts_answer_for_strangers() -> None:
    before, after = POLICY.split("roles: {")
    text = before + after[after.index("tables:") :]
    program = load_program(SourceFile(path="everyone.yaml", text=text))
    state = State(grants=STATE.grants[:2], memberships=STATE.memberships[:1])
    shortcuts = LazyShortcuts(PythonEngine(policy_artifacts(program).program, Index(index_document(program, state))))
    answers = {user: shortcuts["table", "read"](user, "l/s/secret") for user in ("ann", "eve", "stranger", "", "*")}
    assert answers == {"ann": True, "eve": False, "stranger": True, "": None, "*": None}


def test_rows_stay_as_they_are() -> None:
    found = index_document(load_program(SourceFile(path="everyone.yaml", text=POLICY)), STATE)
    assert found["group_principals"].keys() == {"all users"}
    assert found["principals"].keys() == {"eve"}


def test_an_invalid_name_is_refused_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY, encoding="utf-8")
    reference = Reference(load_program(tmp_path / "p.yaml"), STATE)
    with pytest.raises(InvalidRequest):
        reference.decide(Request(user="*", action="read", resource=Entity("table", "l/s/t")))


@pytest.mark.parametrize("value", ["[a, b]", "a/b", "''", "3"])
def test_what_is_no_name_of_a_group(value: str) -> None:
    _, found = syntax.read_policy(SourceFile.of("p.yaml", POLICY.replace("all users", value)))
    assert [finding.code for finding in found] in (["P008"], ["P010"]), found
