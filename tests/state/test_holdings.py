from __future__ import annotations

import pytest

from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.holdings import Holdings
from privtab.state.nodes import Assignment, Grant, State

LAKE = Entity("lake", "l")
TABLE = Entity("table", "l/s/t")


@pytest.fixture(scope="module")
def state() -> State:
    return State(
        members=(("alice", LAKE),),
        memberships=(("alice", "hr"), ("alice", "it"), ("bob", "hr")),
        assignments=(
            Assignment(principal="user:alice", role="analyst"),
            Assignment(principal="group:hr", role="reader"),
            Assignment(principal="group:hr", role="keeper", scope=LAKE),
            Assignment(principal="user:bob", role="keeper", scope=LAKE),
        ),
        grants=(
            Grant(grantee="role:reader", effect="allow", privilege="READ", entity=TABLE),
            Grant(grantee="user:bob", effect="deny", privilege="ALL", entity=TABLE),
            Grant(grantee="user:alice", effect="allow", privilege="SELECT", entity=TABLE),
        ),
        owners=((TABLE, "user:alice"), (TABLE, "user:bob")),
        service_admins=("root",),
    )


def test_principals_are_the_user_their_groups_and_roles(program: Program, state: State) -> None:
    holdings = Holdings(program, state)
    assert holdings.of_user("alice").principals == {"user:alice", "group:hr", "group:it", "role:analyst", "role:reader"}
    assert holdings.of_user("nobody").principals == {"user:nobody"}


def test_scoped_roles_stand_apart(program: Program, state: State) -> None:
    holdings = Holdings(program, state)
    assert holdings.of_user("alice").scoped == holdings.of_user("bob").scoped == (("role:keeper", "lake:l"),)
    assert holdings.of_user("nobody").scoped == ()
    assert holdings.of_user("bob").roles == {"reader", "keeper"}


def test_grants_resolve_aliases_and_sets(program: Program, state: State) -> None:
    holdings = Holdings(program, state)
    allowed, denied = holdings.grants_on("SELECT", "table:l/s/t")
    assert (sorted(allowed), sorted(denied)) == (["role:reader", "user:alice"], ["user:bob"])
    allowed, denied = holdings.grants_on("MODIFY", "table:l/s/t")
    assert (sorted(allowed), sorted(denied)) == ([], ["user:bob"])
    assert holdings.grants_on("READ", "table:l/s/t") == (frozenset(), frozenset())
    assert holdings.grants_on("SELECT", "lake:l") == (frozenset(), frozenset())


def test_owners_members_and_service_admins(program: Program, state: State) -> None:
    holdings = Holdings(program, state)
    assert holdings.owners("table:l/s/t") == {"user:alice", "user:bob"}
    assert holdings.owners("lake:l") == frozenset()
    assert holdings.is_member("alice", "lake:l")
    assert not holdings.is_member("bob", "lake:l")
    assert holdings.service_admins == {"root"}


def test_groups_of_a_request_count_only_where_the_policy_says_so(
    program: Program, trusting: Program, state: State
) -> None:
    assert Holdings(program, state).of_user("eve", ["hr"]).principals == {"user:eve"}
    holdings = Holdings(trusting, state)
    assert holdings.groups("eve", ["hr"]) == {"hr"}
    assert holdings.groups("alice", ["new"]) == {"hr", "it", "new"}
    assert holdings.of_user("eve", ["hr"]).principals == {"user:eve", "group:hr", "role:reader"}
    assert holdings.of_user("eve", ["hr"]).scoped == (("role:keeper", "lake:l"),)
    assert holdings.of_user("eve", ["hr"]).roles == {"reader", "keeper"}
