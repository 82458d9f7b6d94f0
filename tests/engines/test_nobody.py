"""`nobody`: a row that all are refused, alone or as a part of a condition, in each engine and each exact tool."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import requests as http
from engine_agreement import differences, put_state, serving
from generated_programs import read

from privtab.backends.describe import described_policy
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State
from privtab_analysis import who_can
from privtab_analysis.diff import diff

CELLS = {
    "shut": "nobody",
    "either": "nobody or READ (shelf)",
    "both": "nobody and READ (shelf)",
    "through": "can shut (shelf)",
    "unless": "READ (shelf) and (nobody when strict)",
}
ALLOWED = {"shut": [], "either": ["ann"], "both": [], "through": [], "unless": ["ann"]}
"""The users that each operation allows without flags."""
SHELF = Entity("shelf", "s/a")
ROWS = [
    {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "shop:s"},
    {"grantee": "user:ben", "effect": "allow", "privilege": "READ", "entity": "shelf:s/b"},
]
STATE = from_tables({"grants": ROWS, "owners": [{"entity": "shelf:s/a", "owner": "user:cem"}]}, "state")


def text(cells: dict[str, str]) -> str:
    rows = ", ".join(f"{operation}: '{cell}'" for operation, cell in cells.items())
    return (
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: {shelf: }}\n"
        "semantics: {inheritance: down}\n"
        f"privileges: {{READ: {{on: [shop, shelf]}}}}\n"
        f"tables: {{shelf: {{{rows}}}}}\n"
    )


def program(cells: dict[str, str]) -> Program:
    found, diagnostics = read(text(cells))
    assert found is not None, diagnostics
    return found


def test_every_engine_refuses_all(opa_binary: Path) -> None:
    asked = [
        Request(user=user, action=operation, resource=SHELF, flags=flags)
        for user, operation, flags in product(("ann", "ben", "cem"), CELLS, (frozenset(), frozenset({"strict"})))
    ]
    with serving([text(CELLS)], opa_binary) as (url, [world]), http.Session() as session:
        state = world_state(world.program)
        put_state(session, url, world.program, state)
        expected = [
            request.user in ALLOWED[request.action] and (request.action != "unless" or not request.flags)
            for request in asked
        ]
        reference = Reference(world.program, state)
        assert [reference.decide(request).allowed for request in asked] == expected
        assert differences(session, url, world, state, asked) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
        assert engine.allow_many(asked * 40) == expected * 40


def world_state(of: Program) -> State:
    return validate(of, STATE, notes=False)[0]


@pytest.mark.parametrize(("operation", "sets"), [("shut", []), ("either", [["READ (shelf)"]]), ("both", [])])
def test_no_smallest_set_suffices(operation: str, sets: list[list[str]]) -> None:
    rows = described_policy(program(CELLS), revision="")["operations"]
    assert [row["minimal_sets"] for row in rows if row["operation"] == operation] == [sets]


def test_nobody_can() -> None:
    of = program(CELLS)
    state = world_state(of)
    found = {
        operation: list(who_can(Reference(of, state), state, Request(user="", action=operation, resource=SHELF)).users)
        for operation in CELLS
    }
    assert found == ALLOWED


def test_a_row_that_opens_is_wider() -> None:
    shut, opened = program({"take": "nobody"}), program({"take": "READ (shelf)"})
    assert [row.verdict.value for row in diff(shut, opened).rows] == ["wider"]
    assert [row.verdict.value for row in diff(opened, shut).rows] == ["narrower"]
    assert [row.verdict.value for row in diff(shut, program({"take": "nobody and READ (shelf)"})).rows] == ["equal"]


@pytest.mark.parametrize("word", ["Nobody", "none", "false", "never"])
def test_other_words_for_it_are_refused_with_it(word: str) -> None:
    found, diagnostics = read(text({"take": word}))
    assert found is None
    assert [d.help for d in diagnostics if d.severity.value == "error"] == ["write `nobody`"]
