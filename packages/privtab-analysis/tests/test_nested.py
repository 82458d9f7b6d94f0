"""Where a type nests: what is answered, and what says that it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.backends import described_policy
from privtab.base import Entity, Request
from privtab.engines import Index
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State, index_document
from privtab_analysis.changes import change_text
from privtab_analysis.entitlements.universe import asked_entities, universe
from privtab_analysis.explanation import explain
from privtab_analysis.principals import who_can
from privtab_server.authzen.points import Directory

LAKE = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: true}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  table:
    load: READ (table) and USE (every namespace)
    find: READ (any namespace)
    share: {requires: READ (table), grants: READ (table)}
  namespace:
    create: {requires: USE (parent), creates: true}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Program:
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    return load_program(tmp_path / "lake.yaml")


STATE = State(
    grants=(
        Grant(grantee="user:ann", effect="allow", privilege="USE", entity=Entity("namespace", "c/a")),
        Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("table", "c/a/b/t")),
        Grant(grantee="user:ann", effect="deny", privilege="USE", entity=Entity("namespace", "c/a/b")),
    )
)
LOAD = Request(user="ann", action="load", resource=Entity("table", "c/a/b/t"))


def test_an_explanation_names_each_level_and_its_rows(lake: Program) -> None:
    reference = Reference(lake, STATE)
    denied = explain(reference, LOAD, STATE)
    assert not denied.decision.allowed
    [parts] = denied.sets
    assert [(part.atom, part.holds) for part in parts] == [
        ("USE (namespace:c/a/b)", False),
        ("USE (namespace:c/a)", True),
        ("READ (table:c/a/b/t)", True),
    ]
    assert parts[0].denied == ("user:ann at namespace:c/a/b",)
    assert denied.decision.missing == (("deny USE (namespace:c/a/b) to user:ann",),)
    assert [change_text(change, "ann") for [change] in denied.turns] == [
        "remove the denial of USE at namespace:c/a/b to user:ann"
    ]
    assert denied.turns_complete


def test_a_set_for_each_level_that_would_do(lake: Program) -> None:
    request = Request(user="ben", action="find", resource=Entity("table", "c/a/b/t"))
    missing = Reference(lake, STATE).decide(request).missing
    assert missing == (("READ (namespace:c/a)",), ("READ (namespace:c/a/b)",))


def test_containers_of_all_levels_exist(lake: Program) -> None:
    found = [str(entity) for entity in universe(lake, STATE)]
    assert found == ["catalog:c", "namespace:c/a", "namespace:c/a/b", "table:c/a/b/t"]
    directory = Directory(policy_artifacts(lake).program, Index(index_document(lake, STATE)))
    assert directory.paths("namespace") == ("c/a", "c/a/b")
    assert directory.paths("catalog") == ("c",)


def test_a_new_entity_is_resolved_to_its_container(lake: Program) -> None:
    for resource in ("c/a/new", "c/a/"):
        request = Request(user="ann", action="create", resource=Entity("namespace", resource))
        assert list(asked_entities(lake, request)) == [Entity("namespace", "c/a")]
    top = Request(user="ann", action="create", resource=Entity("namespace", "c/"))
    assert list(asked_entities(lake, top)) == [Entity("catalog", "c")]


def test_a_description_tells_the_levels(lake: Program) -> None:
    described = described_policy(lake, revision="")
    assert described["entities"]["namespace"]["nested"] == 16
    sets = {row["operation"]: row["minimal_sets"] for row in described["operations"]}
    assert sets["load"] == [["USE (every namespace)", "READ (table)"]]
    assert sets["create"] == [["USE (parent of namespace)"]]


def test_who_can_cites_the_levels_at_which_atoms_hold(lake: Program) -> None:
    state = State(
        grants=(
            Grant(grantee="role:reader", effect="allow", privilege="READ", entity=Entity("namespace", "c/a/b")),
            Grant(grantee="role:reader", effect="allow", privilege="READ", entity=Entity("table", "c/a/b/t")),
            Grant(grantee="role:reader", effect="allow", privilege="USE", entity=Entity("namespace", "c/a")),
        ),
        assignments=(Assignment(principal="user:ben", role="reader"),),
    )
    reference = Reference(lake, state)
    found = {
        operation: who_can(reference, state, Request(user="", action=operation, resource=Entity("table", "c/a/b/t")))
        for operation in ("find", "load")
    }
    assert [each.users for each in found.values()] == [("ben",), ("ben",)]
    assert [(t.atom, t.on) for t in found["find"].through("ben")] == [("READ (namespace:c/a/b)", "namespace:c/a/b")]
    assert sorted((t.atom, t.on) for t in found["load"].through("ben")) == [
        ("READ (table:c/a/b/t)", "table:c/a/b/t"),
        ("USE (namespace:c/a)", "namespace:c/a"),
        ("USE (namespace:c/a/b)", "namespace:c/a"),
    ]
