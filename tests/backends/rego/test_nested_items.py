"""Batches of items where a type nests: items of all lengths are answered in one call, and unsound keys are denied."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, put_state, serving

from privtab.base.request import Entity
from privtab.state.nodes import Grant, State

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {namespace: {table: }}}
types: {namespace: {nested: 3}}
privileges: [READ]
semantics: {inheritance: down}
tables:
  table:
    load: READ (first namespace)
    look: anyone
    list: {requires: READ (first namespace), each: READ (table)}
"""
STATE = State(
    grants=(Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("namespace", "c/a")),),
)
SOUND = [
    ["catalog:c", "namespace:c/a", "table:c/a/t"],
    ["catalog:c", "namespace:c/a", "namespace:c/a/b", "table:c/a/b/t"],
    ["catalog:c", "namespace:c/a", "namespace:c/a/b", "namespace:c/a/b/c", "table:c/a/b/c/t%2F*"],
]
UNSOUND = [
    ["catalog:c", "namespace:c/a", "table:c/x/t"],
    ["catalog:x", "namespace:c/a", "namespace:c/a/b", "table:c/a/b/t"],
    ["catalog:c", "namespace:c/a", "namespace:c/x", "table:c/a/b/t"],
    ["catalog:c", "namespace:c/a", "table:c/a/**"],
    ["catalog:c", "namespace:c/a", "table:c/a/b%2"],
    ["catalog:c", "namespace:c/a", "table:c//t"],
    ["catalog:c", *(f"namespace:c/a{'/b' * n}" for n in range(4)), "table:c/a/b/b/b/t"],
    ["catalog:c", "namespace:c/a", "namespace:c/a/t"],
    ["namespace:c/a", "table:c/a/t"],
    [],
]


@pytest.mark.slow
def test_items_of_all_lengths_are_decided_and_unsound_ones_denied(opa_binary: Path) -> None:
    with serving([POLICY], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, STATE)

        def decided(action: str, keys: list[list[str]]) -> list[bool]:
            body = {
                "action": {"name": action},
                "resource": {"type": "table"},
                "items": [["ann", own] for own in keys],
            }
            answers: list[bool] = ask(session, url, "lake", "decisions", body)
            return answers

        for action in ("load", "look"):
            assert decided(action, SOUND) == [True] * len(SOUND)
            assert decided(action, [*SOUND, *UNSOUND]) == [True] * len(SOUND) + [False] * len(UNSOUND)
            for unsound in UNSOUND:
                assert decided(action, [unsound, SOUND[0]]) == [False, True], (action, unsound)
        unnamed = ["catalog:c", "namespace:c/a", "namespace:c/a/b", "table:c/a/b/"]
        assert decided("list", [unnamed, SOUND[1]]) == [True, True]
        seen = {"subject": {"type": "user", "id": "ann"}, "action": {"name": "list"}, "resource": {"type": "table"}}
        assert ask(session, url, "lake", "visible", seen | {"items": SOUND}) == [0, 1, 2]
        assert ask(session, url, "lake", "visible", seen | {"items": [UNSOUND[0], SOUND[1], UNSOUND[2]]}) == [1]
