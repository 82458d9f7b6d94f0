from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.state.holdings import Holdings
from privtab.state.index import index, revision
from privtab.state.nodes import Assignment, Grant, State

LAKE, TABLE = Entity("lake", "l"), Entity("table", "l/s/t")
USERS, GROUPS, ROLES = ("a", "b", "c"), ("g", "h"), ("r", "s", "keeper", "visitor")
ENTITIES = (LAKE, Entity("schema", "l/s"), TABLE)

STATES = st.builds(
    State,
    members=st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(ENTITIES)), max_size=4).map(tuple),
    memberships=st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(GROUPS)), max_size=4).map(tuple),
    assignments=st.lists(
        st.builds(
            Assignment,
            principal=st.sampled_from([*(f"user:{u}" for u in USERS), *(f"group:{g}" for g in GROUPS)]),
            role=st.sampled_from(ROLES),
            scope=st.none() | st.sampled_from(ENTITIES),
        ),
        max_size=6,
    ).map(tuple),
    grants=st.lists(
        st.builds(
            Grant,
            grantee=st.sampled_from(
                [*(f"user:{u}" for u in USERS), *(f"group:{g}" for g in GROUPS), *(f"role:{r}" for r in ROLES)]
            ),
            effect=st.sampled_from(["allow", "deny"]),
            privilege=st.sampled_from(["SELECT", "READ", "ALL", "MODIFY"]),
            entity=st.sampled_from(ENTITIES),
        ),
        max_size=6,
    ).map(tuple),
    owners=st.lists(
        st.tuples(st.sampled_from(ENTITIES), st.sampled_from([f"user:{u}" for u in USERS])), max_size=3
    ).map(tuple),
    service_admins=st.lists(st.sampled_from(USERS), max_size=2).map(tuple),
)


def test_one_small_state_in_full(trusting: Program) -> None:
    state = State(
        members=(("alice", LAKE),),
        memberships=(("alice", "hr"), ("alice", "empty")),
        assignments=(
            Assignment(principal="group:hr", role="reader"),
            Assignment(principal="group:hr", role="idle"),
            Assignment(principal="user:alice", role="keeper", scope=LAKE),
            Assignment(principal="group:hr", role="keeper", scope=LAKE),
            Assignment(principal="user:bob", role="idle"),
        ),
        grants=(
            Grant(grantee="role:reader", effect="allow", privilege="ALL", entity=TABLE),
            Grant(grantee="group:hr", effect="deny", privilege="READ", entity=LAKE),
        ),
        owners=((TABLE, "user:alice"),),
        service_admins=("root",),
    )
    document = index(trusting, state)
    stamp = document.pop("revision")
    assert document == {
        "principals": {"alice": ["group:hr", "role:reader", "user:alice"]},
        "scoped": {"alice": {"lake:l": ["role:keeper"]}},
        "allow": {"SELECT": {"table:l/s/t": {"role:reader": True}}, "MODIFY": {"table:l/s/t": {"role:reader": True}}},
        "deny": {"SELECT": {"lake:l": {"group:hr": True}}},
        "owners": {"table:l/s/t": {"user:alice": True}},
        "members": {"lake:l": {"alice": True}},
        "groups": {"alice": {"empty": True, "hr": True}},
        "roles": {"alice": {"idle": True, "keeper": True, "reader": True}, "bob": {"idle": True}},
        "group_principals": {"hr": ["group:hr", "role:reader"]},
        "group_scoped": {"hr": {"lake:l": ["role:keeper"]}},
        "group_roles": {"hr": {"idle": True, "keeper": True, "reader": True}},
        "service_admins": {"root": True},
    }
    assert stamp == revision(document)


def test_an_empty_state_has_every_map(lean: Program, trusting: Program) -> None:
    document = index(lean, State())
    assert document == index(trusting, State())
    assert set(document) == {
        *("revision", "principals", "scoped", "allow", "deny", "owners", "members", "groups", "roles"),
        *("group_principals", "group_scoped", "group_roles", "service_admins"),
    }
    assert all(part == {} for name, part in document.items() if name != "revision")


def test_parts_that_no_rule_asks_for_stay_empty(lean: Program, program: Program) -> None:
    state = State(memberships=(("a", "g"),), assignments=(Assignment(principal="user:a", role="keeper"),))
    for name, there in (("groups", {"a": {"g": True}}), ("roles", {"a": {"keeper": True}})):
        assert index(program, state)[name] == there
        assert index(lean, state)[name] == {}
    assert index(program, state)["principals"] == {"a": ["role:keeper"]}


def test_groups_of_the_state_are_left_out_where_only_the_requests_count(program: Program) -> None:
    foreign = replace(program, semantics=replace(program.semantics, groups=("request",)))
    state = State(
        memberships=(("a", "g"),), grants=(Grant(grantee="group:g", effect="allow", privilege="SELECT", entity=LAKE),)
    )
    document = index(foreign, state)
    assert (document["principals"], document["groups"]) == ({}, {})
    assert document["group_principals"] == {"g": ["group:g"]}


@given(state=STATES, seed=st.integers())
def test_the_order_of_rows_does_not_matter(trusting: Program, state: State, seed: int) -> None:
    def shuffled(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.Random(seed).sample(rows, len(rows)))

    other = State(
        members=shuffled(state.members),
        memberships=shuffled(state.memberships),
        assignments=shuffled(state.assignments),
        grants=shuffled(state.grants),
        owners=shuffled(state.owners),
        service_admins=shuffled(state.service_admins),
    )
    assert json.dumps(index(trusting, state)) == json.dumps(index(trusting, other))


def test_another_row_is_another_revision(program: Program) -> None:
    one = index(program, State(service_admins=("a",)))["revision"]
    assert one != index(program, State(service_admins=("b",)))["revision"]
    assert len(one) == 16


@given(state=STATES)
@settings(max_examples=60, deadline=None)
def test_the_index_agrees_with_the_holdings(trusting: Program, state: State) -> None:
    document, holdings = index(trusting, state), Holdings(trusting, state)
    relevant = (
        {g.grantee for g in state.grants} | {owner for _, owner in state.owners} | {f"role:{r}" for r in trusting.roles}
    )

    for effect, at in (("allow", 0), ("deny", 1)):
        for privilege in trusting.privileges:
            for entity in map(str, ENTITIES):
                there = set(document[effect].get(privilege, {}).get(entity, {}))
                assert there == holdings.grants_on(privilege, entity)[at]
    for entity in map(str, ENTITIES):
        assert set(document["owners"].get(entity, {})) == holdings.owners(entity)
        assert {u for u in USERS if holdings.is_member(u, entity)} == set(document["members"].get(entity, {}))
    assert set(document["service_admins"]) == holdings.service_admins

    for user in USERS:
        for brought in ((), ("g",), ("g", "h")):
            own = set(document["principals"].get(user, ()))
            pairs = pairs_of(document["scoped"].get(user, {}))
            roles = set(document["roles"].get(user, {}))
            for group in brought:
                own |= set(document["group_principals"].get(group, ()))
                pairs |= pairs_of(document["group_scoped"].get(group, {}))
                roles |= set(document["group_roles"].get(group, {}))
            assert own == holdings.principals(user, brought) & relevant
            assert pairs == {pair for pair in holdings.scoped(user, brought) if pair[0] in relevant}
            assert roles == holdings.roles(user, brought)
            assert set(document["groups"].get(user, {})) | set(brought) == holdings.groups(user, brought)


def pairs_of(scopes: dict[str, list[str]]) -> set[tuple[str, str]]:
    return {(role, scope) for scope, roles in scopes.items() for role in roles}
