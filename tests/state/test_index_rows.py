"""Rows that are read back from an index decide as those that it was made from, at every moment."""

from __future__ import annotations

from itertools import product

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.base.moments import ALWAYS, Window
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.bundle.contents import state_of_index
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.links import as_written
from privtab.state.nodes import Assignment, Grant, State


@pytest.mark.parametrize("features", [("active", "hierarchy"), ("attributes",), ("flat",), ("nested", "implies")])
@pytest.mark.parametrize("seed", seeds(range(20), quick=1))
def test_rows_read_back_decide_alike(features: tuple[str, ...], seed: int) -> None:
    program = generated_programs.program(seed, *features)
    state = worlds.timed(worlds.state(program, seed), seed)
    rows = as_written(program, state_of_index(index_document(program, state)))
    assert {row.role for row in rows.assignments} <= {row.role for row in state.assignments}
    requests = worlds.requests(program, seed, 3)
    for moment in (worlds.EPOCH, *worlds.moments(state)[::5]):
        expected, found = Reference(program, state.at(moment)), Reference(program, rows.at(moment))
        for request in requests:
            assert found.decide(request).allowed == expected.decide(request).allowed, (moment, request)


POLICY = """
{privtab: 1, system: office, version: '1', entities: {site: {desk:}}, privileges: [USE],
 semantics: {inheritance: down, hierarchy: [roles], active_roles: request}, tables: {desk: {use: USE (desk)}}}
"""


def test_roles_of_roles_are_read_back_with_their_scopes_and_times() -> None:
    program = load_program(SourceFile.of("office.yaml", POLICY))
    site, other = Entity("site", "s"), Entity("site", "t")
    state = State(
        assignments=(
            Assignment(principal="user:ann", role="head", scope=None),
            Assignment(principal="user:ben", role="head", scope=site),
            Assignment(principal="role:head", role="clerk", scope=None),
            Assignment(principal="role:head", role="guest", scope=other),
        ),
        grants=tuple(
            Grant(grantee=f"role:{role}", effect="allow", privilege="USE", entity=entity)
            for role, entity in (("clerk", Entity("desk", "s/1")), ("guest", Entity("desk", "t/1")))
        ),
        windows={"assignments": (ALWAYS, ALWAYS, Window(10, 20), ALWAYS)},
    )
    rows = state_of_index(index_document(program, state))
    found = {}
    for user, desk, moment in product(("ann", "ben"), ("s/1", "t/1"), (9, 10, 20)):
        request = Request(user=user, action="use", resource=Entity("desk", desk), active_roles=("head",))
        found[user, desk, moment] = Reference(program, rows.at(moment)).decide(request).allowed
        assert found[user, desk, moment] == Reference(program, state.at(moment)).decide(request).allowed
    assert [case for case, allowed in found.items() if allowed] == [
        ("ann", "s/1", 10),
        *(("ann", "t/1", moment) for moment in (9, 10, 20)),
        ("ben", "s/1", 10),
    ]


def test_a_role_that_nobody_holds_within_a_scope_yet_is_read_back_by_its_name() -> None:
    program, site = load_program(SourceFile.of("office.yaml", POLICY)), Entity("site", "s")
    head = Assignment(principal="user:ann", role="head", scope=site)
    windows = (Window(0, 10), Window(20, 30))
    state = State(assignments=(head, Assignment(principal="role:head", role="clerk")), windows={"assignments": windows})
    rows = state_of_index(index_document(program, state))
    within = Assignment(principal="role:head", role="clerk", scope=site)
    assert set(zip(rows.assignments, rows.windows["assignments"], strict=True)) == {
        (head, windows[0]),
        (within, windows[1]),
    }


def test_groups_that_contain_those_of_the_request_are_read_back() -> None:
    text = POLICY.replace("hierarchy: [roles], active_roles: request", "hierarchy: [groups], groups: [state, request]")
    program = load_program(SourceFile.of("office.yaml", text.replace("down,", "down, deny: overrides,")))
    desk = Entity("desk", "s/1")
    state = State(
        memberships=(("group:hr", "it"),),
        grants=(
            Grant(grantee="user:ann", effect="allow", privilege="USE", entity=desk),
            Grant(grantee="group:it", effect="deny", privilege="USE", entity=desk),
        ),
    )
    rows = state_of_index(index_document(program, state))
    for groups, allowed in (((), True), (("hr",), False), (("it",), False)):
        request = Request(user="ann", action="use", resource=desk, groups=groups)
        assert Reference(program, rows).decide(request).allowed is allowed
        assert Reference(program, state).decide(request).allowed is allowed
