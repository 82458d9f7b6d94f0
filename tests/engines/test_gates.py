"""`or` of the gate: a condition that suffices for every row, in each engine and exact tool."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import requests as http
from engine_agreement import differences, put_state, serving, valid
from generated_programs import read

from privtab.backends.describe import described_policy
from privtab.base.attributes import GivenAttributes
from privtab.base.diagnostics import Severity
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State
from privtab_analysis import who_can
from privtab_analysis.diff import diff

GATE = "{and: member (shop), or: MANAGE (shop)}"
ROWS = {
    "take": "READ (shelf)",
    "shut": "nobody",
    "open": "anyone",
    "through": "can take (shelf)",
    "list": "{each: READ (shelf)}",
    "note": "{requires: READ (shelf), gate: none}",
    "force": "{requires: READ (shelf) when forced, flags: {forced: required}}",
    "put": "{requires: READ (other), with: {other: shelf}}",
    "paint": "{requires: READ (shelf) and request.colour = red}",
}
ALLOWED = {
    **{operation: ["ann", "boss"] for operation in ("take", "through", "list", "put")},
    "shut": ["boss"],
    "open": ["ann", "cem", "boss"],
    "note": ["ann", "ben"],
    "force": ["ann", "boss"],
    "paint": ["boss"],
}
"""The users that each operation allows: members who may read, without regard to the gate or to the row."""
USERS = ("ann", "ben", "cem", "boss", "eve")
SHELF = Entity("shelf", "s/a")
GRANTS = [
    ("ann", "READ", "shelf:s/a"),
    ("ben", "READ", "shelf:s/a"),
    ("boss", "MANAGE", "shop:s"),
    ("eve", "MANAGE", "shelf:s/a"),
]
STATE = from_tables(
    {
        "grants": [{"grantee": f"user:{u}", "effect": "allow", "privilege": p, "entity": e} for u, p, e in GRANTS],
        "members": [{"user": user, "of": "shop:s"} for user in ("ann", "cem")],
    },
    "state",
)


def text(rows: dict[str, str] = ROWS, gate: str = GATE, more: str = "") -> str:
    return (
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: {shelf: }}\n"
        f"semantics: {{gate: {gate}}}\nprivileges: [READ, MANAGE]\n"
        f"attributes: {{request: {{colour: text}}}}\n{more}"
        f"tables: {{shelf: {{{', '.join(f'{operation}: {row}' for operation, row in rows.items())}}}}}\n"
    )


def program(rows: dict[str, str] = ROWS, gate: str = GATE, more: str = "") -> Program:
    found, diagnostics = read(text(rows, gate, more))
    assert found is not None, diagnostics
    return found


def state_for(of: Program) -> State:
    return validate(of, STATE, notes=False)[0]


def asking(user: str, operation: str) -> Request:
    return Request(
        user=user,
        action=operation,
        resource=SHELF,
        flags=frozenset({"forced"} if operation == "force" else ()),
        with_={"other": SHELF} if operation == "put" else {},
        attributes=GivenAttributes(request={"colour": "blue"}) if operation == "paint" else GivenAttributes.NONE,
    )


def test_what_suffices_opens_every_row_to_whom_it_is_about(opa_binary: Path) -> None:
    asked = [asking(user, operation) for user, operation in product(USERS, ROWS)]
    expected = [request.user in ALLOWED[request.action] for request in asked]
    with serving([text()], opa_binary) as (url, [world]), http.Session() as session:
        state = state_for(world.program)
        put_state(session, url, world.program, state)
        reference = Reference(world.program, state)
        assert [reference.decide(request).allowed for request in asked] == expected
        assert differences(session, url, world, state, asked) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
        assert engine.allow_many(asked * 40) == expected * 40


@pytest.mark.parametrize(
    ("gate", "sets"),
    [
        (GATE, {"take": [["MANAGE (shop)"], ["member (shop)", "READ (shelf)"]], "shut": [["MANAGE (shop)"]]}),
        (
            "{or: MANAGE (shop)}",
            {"take": [["MANAGE (shop)"], ["READ (shelf)"]], "open": [[]], "shut": [["MANAGE (shop)"]]},
        ),
        (
            "{and: member (shop)}",
            {"take": [["member (shop)", "READ (shelf)"]], "shut": [], "open": [["member (shop)"]]},
        ),
        ("{or: nobody}", {"take": [["READ (shelf)"]], "shut": []}),
        ("{and: member (shop), or: anyone}", {"take": [[]], "shut": [[]], "note": [["READ (shelf)"]]}),
    ],
)
def test_smallest_sets(gate: str, sets: dict[str, list[list[str]]]) -> None:
    rows = {row["operation"]: row for row in described_policy(program(gate=gate), revision="")["operations"]}
    assert {operation: rows[operation]["minimal_sets"] for operation in sets} == sets


def test_those_who_meet_it_can() -> None:
    of = program()
    state = state_for(of)
    found = {o: sorted(who_can(Reference(of, state), state, asking("", o)).users) for o in ROWS}
    assert found == {operation: sorted(users) for operation, users in ALLOWED.items()}


def test_flags_objects_and_attributes_stay_required() -> None:
    names = vocabulary(program())
    for operation in ("force", "put"):
        assert not valid(replace(asking("boss", operation), with_={}, flags=frozenset()), names)
    assert not valid(replace(asking("boss", "paint"), attributes=GivenAttributes(request={"colour": 3})), names)
    assert valid(asking("boss", "paint"), names)


def test_more_that_suffices_is_wider() -> None:
    rows = {"take": "READ (shelf)", "note": "{requires: READ (shelf), gate: none}"}
    plain, wider = program(rows, "member (shop)"), program(rows)
    assert [row.verdict.value for row in diff(plain, wider).rows] == ["wider", "equal"]
    assert [row.verdict.value for row in diff(wider, plain).rows] == ["narrower", "equal"]
    assert [row.verdict.value for row in diff(plain, program(rows, "{and: member (shop)}")).rows] == ["equal", "equal"]


def test_filters_take_the_gate_without_what_suffices() -> None:
    own = 'types: {shelf: {row_filters: {own: {requires: READ (shelf), sql: "TRUE"}}}}\ndialect: spark\n'
    rules = [
        program({"take": "READ (shelf)"}, gate, own).rules["shelf", "row_filter.own"]
        for gate in (GATE, "member (shop)")
    ]
    assert rules[0].item_condition == rules[1].item_condition


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("{}", "`gate` is empty"),
        ("{and: member (shop), but: READ (shop)}", "unknown key `but` in `gate`"),
        ("{or: }", "`or` of `gate` must be a condition, not nothing"),
        ("[member (shop)]", "`gate` must be a condition, not a list"),
        ("{or: READ (shelf)}", "`shelf` is not on the path of `shop`"),
    ],
)
def test_gates_that_are_refused(gate: str, message: str) -> None:
    found, diagnostics = read(text({"take": "READ (shelf)"}, gate, "core: {look: READ (entity)}\n"))
    assert found is None
    assert [d.message for d in diagnostics if d.severity is Severity.ERROR] == [message]


def test_a_gate_that_leads_back_to_its_row_is_refused() -> None:
    found, diagnostics = read(text({"take": "READ (shelf)"}, "{or: can run (shop)}", "core: {run: READ (entity)}\n"))
    assert found is None
    assert [d.code for d in diagnostics if d.severity is Severity.ERROR] == ["P204"]
