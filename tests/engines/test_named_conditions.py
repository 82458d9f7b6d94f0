"""Named conditions: what a name stands for is what the condition is where it is written out, in each engine and exact tool."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import requests as http
from engine_agreement import differences, put_state, serving
from generated_programs import read

from privtab.backends.describe import described_policy
from privtab.base.diagnostics import Severity
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State
from privtab_analysis import who_can
from privtab_analysis.diff import diff

CONDITIONS = "KEEPER: MANAGE (shop) or owner (entity), EDITOR: 'KEEPER (entity) or WRITE (entity) and (MANAGE (shop) when strict)'"
ROWS = {
    "take": ("READ (shelf) or KEEPER (shelf)", "READ (shelf) or MANAGE (shop) or owner (shelf)"),
    "list": ("KEEPER/READ (shelf)", "MANAGE (shop) or owner (shelf) or READ (shelf)"),
    "both": ("KEEPER + READ (shelf)", "(MANAGE (shop) or owner (shelf)) and READ (shelf)"),
    "around": ("KEEPER (shop, shelf)", "MANAGE (shop) or owner (shop, shelf)"),
    "put": ("EDITOR (shelf)", "MANAGE (shop) or owner (shelf) or WRITE (shelf) and (MANAGE (shop) when strict)"),
    "copy": ("{with: {to: [shelf, crate]}, requires: KEEPER (to)}", None),
    "through": ("can put (shelf)", "can put (shelf)"),
}
"""The operations, each with its condition by name and written out."""
SHELF, CRATE = Entity("shelf", "s/a"), Entity("crate", "s/c")
GRANTS = [("ann", "READ", "shelf:s/a"), ("ben", "WRITE", "shelf:s/a"), ("boss", "MANAGE", "shop:s")]
OWNERS = [("shelf:s/a", "cem"), ("crate:s/c", "dan"), ("shop:s", "eve")]
USERS = ("ann", "ben", "boss", "cem", "dan", "eve")
STATE = from_tables(
    {
        "grants": [{"grantee": f"user:{u}", "effect": "allow", "privilege": p, "entity": e} for u, p, e in GRANTS],
        "owners": [{"entity": entity, "owner": f"user:{owner}"} for entity, owner in OWNERS],
    },
    "state",
)


def text(rows: dict[str, str], conditions: str = CONDITIONS) -> str:
    named = f"conditions: {{{conditions}}}\n" if conditions else ""
    listed = ", ".join(f"{operation}: {row if row[0] == '{' else repr(row)}" for operation, row in rows.items())
    return (
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: {shelf: , crate: }}\nsemantics: {owner: {creator: false}}\n"
        f"privileges: [READ, WRITE, MANAGE]\n{named}tables: {{shelf: {{{listed}}}}}\n"
    )


BY_NAME = {operation: row for operation, (row, _) in ROWS.items()}
WRITTEN_OUT = {operation: row for operation, (_, row) in ROWS.items() if row is not None}


def program(rows: dict[str, str], conditions: str = CONDITIONS) -> Program:
    found, diagnostics = read(text(rows, conditions))
    assert found is not None, diagnostics
    return found


def state_for(of: Program) -> State:
    return validate(of, STATE, notes=False)[0]


def test_every_engine_decides_as_written_out(opa_binary: Path) -> None:
    objects: dict[str, list[dict[str, Entity]]] = {"copy": [{"to": SHELF}, {"to": CRATE}]}
    asked = [
        Request(user=user, action=operation, resource=SHELF, flags=flags, with_=with_)
        for user, operation, flags in product(USERS, BY_NAME, (frozenset[str](), frozenset({"strict"})))
        for with_ in objects.get(operation, [{}])
    ]
    with serving([text(BY_NAME)], opa_binary) as (url, [world]), http.Session() as session:
        state = state_for(world.program)
        put_state(session, url, world.program, state)
        reference, other = Reference(world.program, state), Reference(program(WRITTEN_OUT, ""), state)
        expected = [reference.decide(request).allowed for request in asked]
        for request, answer in zip(asked, expected, strict=True):
            if request.action == "copy":
                assert answer == (request.user in {"boss", "cem" if request.with_["to"] == SHELF else "dan"})
            else:
                assert answer == other.decide(request).allowed, request
        assert differences(session, url, world, state, asked) == []
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
        assert engine.allow_many(asked * 40) == expected * 40


def test_they_mean_what_they_say_written_out() -> None:
    named, plain = program({o: BY_NAME[o] for o in WRITTEN_OUT}), program(WRITTEN_OUT, "")
    compared = diff(named, plain)
    assert {row.verdict.value for row in compared.rows} == {"equal"}
    assert [(change.kind, change.name, change.meaning) for change in compared.declared] == [
        ("condition", "KEEPER", False),
        ("condition", "EDITOR", False),
    ]
    sets = [
        {row["operation"]: row["minimal_sets"] for row in described_policy(of, revision="")["operations"]}
        for of in (named, plain)
    ]
    assert sets[0] == sets[1]


def test_nothing_of_the_names_is_in_the_program() -> None:
    document = program_json(program({"take": BY_NAME["take"]}))
    assert "KEEPER" not in str(document["rules"]["shelf"]["take"]["call"])
    assert "conditions" not in document


def test_the_description_keeps_the_names() -> None:
    described = described_policy(program(BY_NAME), revision="")
    assert described["conditions"]["KEEPER"] == "MANAGE (shop) or owner (entity)"
    assert (
        next(row["requires"] for row in described["operations"] if row["operation"] == "list") == "KEEPER/READ (shelf)"
    )


def test_those_who_meet_it_can() -> None:
    of = program(BY_NAME)
    state = state_for(of)
    found = who_can(Reference(of, state), state, Request(user="", action="take", resource=SHELF))
    assert list(found.users) == ["ann", "boss", "cem"]


@pytest.mark.parametrize(
    ("conditions", "row", "code", "message"),
    [
        ("READ: owner (entity)", "READ (shelf)", "P207", "name `READ` is declared twice"),
        ("nobody: owner (entity)", "READ (shelf)", "P010", None),
        ("A: A (entity)", "A (shelf)", "P009", "the condition `A` would never end"),
        ("A: B (entity), B: A (shop)", "A (shelf)", "P009", "the conditions `A` and `B` would never end"),
        ("A: can take (entity)", "A (shelf)", "P204", None),
        ("A: RAED (entity)", "A (shelf)", "P101", "unknown privilege `RAED`"),
        ("A: RAED (entity)", "READ (shelf)", "P101", "unknown privilege `RAED`"),
        ("A: READ (crate)", "A (shelf)", "P104", "`crate` is not on the path of `shelf`"),
        ("A: READ (entity)", "A (shelf or below)", "P221", None),
        ("A: READ (entity)", "B (shelf)", "P101", "unknown privilege `B`"),
        (
            "A: READ (entity)",
            "{requires: READ (shelf), grants: A (shelf)}",
            "P009",
            "`A` is a condition, and no privilege",
        ),
        ("A: [READ (entity)]", "A (shelf)", "P008", "the condition `A` must be a condition, not a list"),
    ],
)
def test_conditions_that_are_refused(conditions: str, row: str, code: str, message: str | None) -> None:
    found, diagnostics = read(text({"take": row}, conditions))
    assert found is None
    errors = [d for d in diagnostics if d.severity is Severity.ERROR]
    assert [d.code for d in errors] == [code]
    assert message in (None, errors[0].message)


def test_conditions_that_grow_without_bounds_are_refused() -> None:
    doubling = ", ".join(f"'A{n}': 'A{n + 1} (entity) or A{n + 1} (shop)'" for n in range(40))
    found, diagnostics = read(text({"take": "A0 (shelf)"}, f"{doubling}, 'A40': READ (shop)"))
    assert found is None
    assert [d.code for d in diagnostics if d.severity is Severity.ERROR] == ["P009"]


def test_a_creation_needs_what_its_condition_needs() -> None:
    rows = {
        "create": "{requires: A (shop), grants: READ (entity)}",
        "claim": "{requires: A (entity), grants: READ (entity)}",
    }
    of = program(rows, "A: READ (entity)")
    assert [of.rules["shelf", operation].creates for operation in rows] == ["surely", None]
