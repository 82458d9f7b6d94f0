"""`any privilege (TYPE)`: as if every privilege were listed there, in each engine, and as one cell for the exact tools."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from generated_programs import read

from privtab.base.diagnostics import Diagnostic
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.canonical import canonical_form
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab_analysis.diff import diff

PRIVILEGES = {"USAGE": ("database", "schema"), "CREATE": ("schema",), "SELECT": ("table",), "INSERT": ("table",)}
KEYS = {"database": "database:d", "schema": "schema:d/s", "table": "table:d/s/t"}


def text(semantics: str, schema: str, table: str, privileges: str = "") -> str:
    declared = ", ".join(f"{name}: {{on: [{', '.join(on)}]}}" for name, on in PRIVILEGES.items())
    return (
        "privtab: 1\nsystem: snow\nversion: '1'\nentities: {database: {schema: {table: }}}\n"
        f"privileges: {{{declared}{privileges}}}\nsemantics: {{{semantics}}}\n"
        f"tables: {{table: {{use: '{schema}', know: '{table}', both: '({schema}) and ({table})'}}}}\n"
    )


def program(semantics: str, schema: str = "any privilege (schema)", table: str = "any privilege (table)") -> Program:
    found, diagnostics = read(text(semantics, schema, table))
    assert found is not None, diagnostics
    return found


def findings(text_: str) -> list[Diagnostic]:
    return [d for d in read(text_)[1] if d.severity.value == "error"]


MEANINGS = [
    f"inheritance: {down}, deny: {deny}, owner: {owner}"
    for down, deny, owner in product(
        ("none", "down"), ("none", "overrides"), ("{kinds: [user], holds: [SELECT]}", "none")
    )
]


@pytest.mark.parametrize("semantics", MEANINGS)
def test_it_is_every_privilege_listed(semantics: str) -> None:
    asked = program(semantics)
    listed = program(semantics, "USAGE/CREATE (schema)", "SELECT/INSERT (table)")
    rows: list[tuple[str, dict[str, Any]]] = [
        ("grants", {"grantee": "user:ann", "effect": effect, "privilege": name, "entity": KEYS[type_]})
        for name, on in PRIVILEGES.items()
        for type_ in on
        for effect in ("allow", "deny")[: 2 if "overrides" in semantics else 1]
    ]
    rows += [("owners", {"entity": key, "owner": "user:ann"}) for key in KEYS.values() if "kinds" in semantics]
    artifacts = policy_artifacts(asked)
    allowed = 0
    for chosen in (*combinations(rows, 1), *combinations(rows, 2)):
        tables: dict[str, list[Any]] = {}
        for table, row in chosen:
            tables.setdefault(table, []).append(row)
        state, wrong = validate(asked, from_tables(tables, "rows"))
        assert state is not None, wrong
        engine = PythonEngine(artifacts.program, Index(index_document(asked, state)))
        reference, other = Reference(asked, state), Reference(listed, state)
        for operation in ("use", "know", "both"):
            request = Request(user="ann", action=operation, resource=Entity("table", "d/s/t"))
            right = other.decide(request).allowed
            allowed += right
            assert (reference.decide(request).allowed, engine.allow(request)) == (right, right), (request, chosen)
    assert allowed > len(rows)


def test_without_denials_it_is_one_atom_however_often_it_is_asked_for() -> None:
    asked = program("inheritance: none")
    sets = canonical_form(asked).minimal_sets(asked.rules["table", "both"].requires)
    assert [[atom.privilege for atom in atoms] for atoms in sets] == [["any privilege", "any privilege"]]  # type: ignore[union-attr]


def test_a_difference_is_shown_by_privileges_that_rows_can_have() -> None:
    for semantics in ("inheritance: none", "inheritance: none, deny: overrides"):
        row = next(
            r for r in diff(program(semantics, "USAGE (schema)"), program(semantics)).rows if r.operation == "use"
        )
        assert row.verdict.value == "wider"
        assert "'privilege': 'CREATE', 'entity': 'schema:database1/schema1'" in str(row.witnesses[0])


def test_no_row_can_name_it_and_no_privilege_can_be_called_so() -> None:
    asked = program("inheritance: none")
    row = {"grantee": "user:ann", "effect": "allow", "privilege": "any privilege", "entity": KEYS["schema"]}
    _, wrong = validate(asked, from_tables({"grants": [row]}, "rows"))
    assert [finding.code for finding in wrong] == ["S130"]
    assert [
        d.code for d in findings(text("inheritance: none", "USAGE (schema)", "SELECT (table)", ', "any privilege": '))
    ] == ["P010"]


def test_where_nothing_can_be_granted_it_is_a_finding() -> None:
    for semantics in ("inheritance: none", "deny: overrides"):
        source = text(semantics, "any privilege (schema)", "any privilege (table)").replace("[table]", "[schema]")
        assert [d.code for d in findings(source)] == ["P206", "P206"]
