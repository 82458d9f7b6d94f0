from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.holdings import Holdings
from privtab.state.index import index_document, revision
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.principal_rows import SEPARATOR

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


def test_the_whole_index_of_a_small_state(trusting: Program) -> None:
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
    document = index_document(trusting, state)
    stamp = document.pop("revision")
    keeper = 'scoped:["lake:l","role:keeper"]'
    assert document == {
        "principals": {
            "alice": SEPARATOR.join(["group:empty", "group:hr", "role:idle", "role:reader", keeper, "user:alice"]),
            "bob": "role:idle",
        },
        "scoped": {"alice": {"lake:l": ["role:keeper"]}},
        "within": {keeper: ["role:keeper", "lake:l"]},
        "allow": {"SELECT": {"table:l/s/t": {"role:reader": True}}, "MODIFY": {"table:l/s/t": {"role:reader": True}}},
        "deny": {"SELECT": {"lake:l": {"group:hr": True}}},
        "owners": {"table:l/s/t": {"user:alice": True}},
        "members": {"lake:l": {"alice": True}},
        "group_principals": {"hr": SEPARATOR.join(["group:hr", "role:idle", "role:reader", keeper])},
        "group_scoped": {"hr": {"lake:l": ["role:keeper"]}},
        "service_admins": {"root": True},
    }
    assert stamp == revision(document)


def test_an_empty_state_has_every_map(lean: Program, trusting: Program) -> None:
    document = index_document(lean, State())
    assert document == index_document(trusting, State())
    assert set(document) == {
        *("revision", "principals", "scoped", "within", "allow", "deny", "owners", "members", "service_admins"),
        *("group_principals", "group_scoped"),
    }
    assert all(part == {} for name, part in document.items() if name != "revision")


def test_principals_without_grants_are_left_out(lean: Program, program: Program) -> None:
    state = State(memberships=(("a", "g"),), assignments=(Assignment(principal="user:a", role="r"),))
    assert index_document(program, state)["principals"] == {"a": "group:g\nrole:r"}
    assert index_document(lean, state)["principals"] == {}
    declared = State(assignments=(Assignment(principal="user:a", role="visitor"),))
    assert index_document(lean, declared)["principals"] == {"a": "role:visitor"}


def test_grants_of_a_scoped_role_stand_where_they_take_effect(program: Program) -> None:
    schema, elsewhere = Entity("schema", "l/s"), Entity("lake", "m")
    reader = 'scoped:["schema:l/s","role:r"]'
    state = State(
        assignments=(Assignment(principal="user:a", role="r", scope=schema),),
        grants=tuple(
            Grant(grantee="role:r", effect="allow", privilege="SELECT", entity=e) for e in (LAKE, TABLE, elsewhere)
        ),
    )
    document = index_document(program, state)
    assert document["principals"] == {"a": reader}
    assert document["allow"]["SELECT"] == {
        "lake:l": {"role:r": True},
        "lake:m": {"role:r": True},
        "schema:l/s": {reader: ["lake:l"]},
        "table:l/s/t": {"role:r": True, reader: ["table:l/s/t"]},
    }
    flat = replace(program, semantics=replace(program.semantics, inheritance="none"))
    assert "schema:l/s" not in index_document(flat, state)["allow"]["SELECT"]


def test_groups_of_the_state_are_left_out_where_only_the_requests_count(program: Program) -> None:
    foreign = replace(program, semantics=replace(program.semantics, groups=("request",)))
    grant = Grant(grantee="group:g", effect="allow", privilege="SELECT", entity=LAKE)
    document = index_document(foreign, State(memberships=(("a", "g"),), grants=(grant,)))
    assert document["principals"] == {}
    assert document["group_principals"] == {"g": "group:g"}


@given(state=STATES, seed=st.integers())
def test_the_order_of_rows_does_not_matter(trusting: Program, state: State, seed: int) -> None:
    def shuffled(rows: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(random.Random(seed).sample(rows, len(rows)))

    other = State(
        members=shuffled(state.members),
        memberships=shuffled(state.memberships),
        assignments=shuffled(state.assignments),
        grants=shuffled(state.grants),
        owners=shuffled(state.owners),
        service_admins=shuffled(state.service_admins),
    )
    assert json.dumps(index_document(trusting, state)) == json.dumps(index_document(trusting, other))


def test_another_row_is_another_revision(program: Program) -> None:
    first = index_document(program, State(service_admins=("a",)))["revision"]
    assert first != index_document(program, State(service_admins=("b",)))["revision"]
    assert len(first) == 16


@pytest.mark.parametrize("inheritance", ["down", "none"])
@given(state=STATES)
@settings(max_examples=60, deadline=None)
def test_lookups_in_the_index_agree_with_the_holdings(
    trusting: Program, inheritance: Literal["down", "none"], state: State
) -> None:
    program = replace(trusting, semantics=replace(trusting.semantics, inheritance=inheritance))
    document, holdings = index_document(program, state), Holdings(program, state)
    for entity in map(str, ENTITIES):
        assert set(document["owners"].get(entity, {})) == holdings.owners(entity)
        assert {u for u in USERS if holdings.is_member(u, entity)} == set(document["members"].get(entity, {}))
    assert set(document["service_admins"]) == holdings.service_admins

    for user in USERS:
        for request_groups in ((), ("g",), ("g", "h")):
            own = set(document["principals"].get(user, "").split("\n")) - {""}
            pairs = pairs_of(document["scoped"].get(user, {}))
            for group in request_groups:
                own |= set(document["group_principals"].get(group, "").split("\n")) - {""}
                pairs |= pairs_of(document["group_scoped"].get(group, {}))
            everywhere, scoped = (
                holdings.of_user(user, request_groups).principals,
                holdings.of_user(user, request_groups).scoped,
            )
            roles = {document["within"][p][0] if p in document["within"] else p for p in own}
            assert {r[5:] for r in roles if r.startswith("role:")} == holdings.of_user(user, request_groups).roles
            assert {g[6:] for g in own if g.startswith("group:")} | set(request_groups) == holdings.groups(
                user, request_groups
            )
            assert pairs == {(role, scope) for role, scope in scoped if role[5:] in program.roles}
            for depth in range(1, len(ENTITIES) + 1):
                path = [str(entity) for entity in ENTITIES[:depth]]
                looked_at = path if inheritance == "down" else path[-1:]
                who = everywhere | {role for role, scope in scoped if scope in path}
                for effect, at in (("allow", 0), ("deny", 1)):
                    for privilege in program.privileges:
                        entries = [document[effect].get(privilege, {}).get(key, {}) for key in looked_at]
                        found = any(entry.get(p) for entry in entries for p in own)
                        assert found == any(holdings.grants_on(privilege, key)[at] & who for key in looked_at)


def pairs_of(scopes: dict[str, list[str]]) -> set[tuple[str, str]]:
    return {(role, scope) for scope, roles in scopes.items() for role in roles}
