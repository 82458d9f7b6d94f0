"""What is held on an entity or below it: the reference, the index and the `python` engine on states made by hand."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import pytest

from privtab import model
from privtab.base.moments import ALWAYS, Window
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine, WindowedIndex
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Assignment, Grant, State

POLICY = """
privtab: 1
system: lake
version: 1
entities: {catalog: {schema: {table:}}}
privileges: [READ, WRITE]
semantics: {inheritance: %s, deny: overrides, owner: {kinds: [user, group], holds: [WRITE]}}
tables:
  catalog:
    see: READ (catalog or below)
    edit: WRITE (catalog or below)
    own: owner (catalog or below)
  schema:
    see: READ (schema or below)
    create: {requires: READ (schema or below), creates: false}
  table:
    see: READ (catalog or below)
"""


def program(inheritance: Literal["down", "none"] = "down") -> Program:
    tables, found = syntax.read_policy(SourceFile.of("lake.yaml", POLICY % inheritance))
    assert tables is not None, found
    policy, more = model.resolve(tables)
    assert policy is not None, more
    return lower(policy)


def row(grantee: str, effect: Any, entity: str, privilege: str = "READ") -> Grant:
    return Grant(grantee=grantee, effect=effect, privilege=privilege, entity=Entity.parse(entity))


def allowed(state: State, action: str, entity: str, inheritance: Literal["down", "none"] = "down") -> bool:
    """The answer for ann, the same from both engines, with the same explanation."""
    of = program(inheritance)
    request = Request(user="ann", action=action, resource=Entity.parse(entity))
    expected = Reference(of, state).decide(request)
    engine = PythonEngine(program_json(of), Index(index_document(of, state)))
    assert engine.decide_many([request]) == [expected]
    assert engine.allow(request) == expected.allowed
    return expected.allowed


ON_TABLE = row("user:ann", "allow", "table:c/s/t")


@pytest.mark.parametrize("entity", ["catalog:c", "schema:c/s", "table:c/s/t"])
@pytest.mark.parametrize("inheritance", ["down", "none"])
def test_containers_of_what_is_held_are_seen(entity: str, inheritance: Literal["down", "none"]) -> None:
    assert allowed(State(grants=(ON_TABLE,)), "see", entity, inheritance)


@pytest.mark.parametrize("entity", ["catalog:d", "schema:c/other"])
def test_containers_of_other_things_are_not_seen(entity: str) -> None:
    assert not allowed(State(grants=(ON_TABLE,)), "see", entity)


def test_an_entity_beside_is_seen_with_its_catalog() -> None:
    assert allowed(State(grants=(ON_TABLE,)), "see", "table:c/s/other"), "its row asks about the catalog"


@pytest.mark.parametrize("denied", ["table:c/s/t", "schema:c/s", "catalog:c"])
def test_a_denial_takes_away_what_is_held_under_it(denied: str) -> None:
    state = State(grants=(ON_TABLE, row("user:ann", "deny", denied)))
    assert not allowed(state, "see", "catalog:c")
    assert not allowed(state, "see", "schema:c/s")


def test_a_denial_leaves_what_is_held_elsewhere() -> None:
    other = row("user:ann", "allow", "table:c/s2/t")
    state = State(grants=(ON_TABLE, other, row("user:ann", "deny", "schema:c/s")))
    assert allowed(state, "see", "catalog:c")
    assert not allowed(state, "see", "schema:c/s")
    assert allowed(state, "see", "schema:c/s2")


def test_without_inheritance_a_denial_above_does_not_count_below() -> None:
    state = State(grants=(ON_TABLE, row("user:ann", "deny", "catalog:c")))
    assert allowed(state, "see", "catalog:c", "none")


def test_a_denial_counts_for_those_whom_it_names() -> None:
    rows = (row("group:team", "allow", "table:c/s/t"), row("group:guests", "deny", "schema:c/s"))
    member = State(grants=rows, memberships=(("ann", "team"),))
    assert allowed(member, "see", "catalog:c")
    guest = State(grants=rows, memberships=(("ann", "team"), ("ann", "guests")))
    assert not allowed(guest, "see", "catalog:c")


def test_of_two_grants_one_without_a_denial_is_enough() -> None:
    rows = (
        row("user:ann", "allow", "table:c/s/t"),
        row("user:ann", "allow", "table:c/s2/t"),
        row("group:team", "deny", "table:c/s/t"),
        row("group:guests", "deny", "table:c/s2/t"),
    )
    assert allowed(State(grants=rows, memberships=(("ann", "team"),)), "see", "catalog:c")
    both = State(grants=rows, memberships=(("ann", "team"), ("ann", "guests")))
    assert not allowed(both, "see", "catalog:c")


def test_an_owner_below_is_not_denied() -> None:
    state = State(
        owners=((Entity.parse("table:c/s/t"), "user:ann"),), grants=(row("user:ann", "deny", "catalog:c", "WRITE"),)
    )
    assert allowed(state, "edit", "catalog:c")
    assert allowed(state, "own", "catalog:c")
    assert not allowed(state, "see", "catalog:c")


def test_a_role_within_a_scope_below_has_what_is_granted_above() -> None:
    state = State(
        grants=(row("role:reader", "allow", "catalog:c"),),
        assignments=(Assignment(principal="user:ann", role="reader", scope=Entity.parse("schema:c/s")),),
    )
    assert allowed(state, "see", "catalog:c")
    assert allowed(state, "see", "schema:c/s")
    assert not allowed(state, "see", "schema:c/other")


def test_the_index_lists_whom_a_denial_below_concerns() -> None:
    rows = (
        row("user:ann", "allow", "table:c/s/t"),
        row("group:team", "allow", "table:c/s/t"),
        row("group:team", "allow", "table:c/s2/t"),
        row("user:bob", "deny", "schema:c/s"),
    )
    document = index_document(program(), State(grants=rows))
    assert document["below"]["READ"] == {
        "catalog:c": {"group:team": True, "user:ann": [["user:bob"]]},
        "schema:c/s": {"group:team": [["user:bob"]], "user:ann": [["user:bob"]]},
        "schema:c/s2": {"group:team": True},
    }
    assert document["owned_below"] == {}


def test_other_policies_have_no_such_parts() -> None:
    text = POLICY.replace(" or below", "") % "down"
    tables, _ = syntax.read_policy(SourceFile.of("lake.yaml", text))
    assert tables is not None
    policy, _ = model.resolve(tables)
    assert policy is not None
    assert not {"below", "owned_below"} & index_document(lower(policy), State(grants=(ON_TABLE,))).keys()


def test_rows_below_count_while_they_hold() -> None:
    grants = (
        ON_TABLE,
        row("user:ann", "deny", "schema:c/s"),
        row("user:ann", "allow", "table:c/s2/t"),
    )
    owners = ((Entity.parse("table:c/s3/t"), "user:ann"),)
    windows = {"grants": (Window(0, 40), Window(10, 20), Window(30, 50)), "owners": (Window(60, 70),)}
    state = State(grants=grants, owners=owners, windows=windows)
    of = program()
    timed = WindowedIndex(index_document(of, state))
    seen: dict[str, list[int]] = {}
    for action, at in product(("see", "edit", "own"), range(-5, 80, 5)):
        request = Request(user="ann", action=action, resource=Entity.parse("catalog:c"))
        expected = Reference(of, state.at(at)).decide(request)
        assert PythonEngine(program_json(of), timed.at(at)).decide_many([request]) == [expected], at
        if expected.allowed:
            seen.setdefault(action, []).append(at)
    assert seen == {"see": [0, 5, 20, 25, 30, 35, 40, 45], "edit": [60, 65], "own": [60, 65]}


def test_a_denial_for_a_time_is_beside_the_row_that_it_concerns() -> None:
    grants = (ON_TABLE, row("group:hr", "deny", "schema:c/s"))
    document = index_document(program(), State(grants=grants, windows={"grants": (ALWAYS, Window(10, 20))}))
    entry = {"times": [list(ALWAYS)], "denied": {"group:hr": [[10, 20]]}}
    below = document["windowed"]["windows"]["below"]["READ"]
    assert below["catalog:c"] == {"user:ann": {"table:c/s/t": entry}}
    assert "below" not in document["windowed"].keys() | document.keys()


def test_windows_in_which_nothing_holds_leave_the_index_as_it_is() -> None:
    state = State(grants=(ON_TABLE, ON_TABLE), windows={"grants": (ALWAYS, Window(7, 7))})
    assert index_document(program(), state) == index_document(program(), State(grants=(ON_TABLE,)))
