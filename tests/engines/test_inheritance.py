"""Privileges with an inheritance of their own: a computation from the words of the language, the reference and each engine, on small states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
from generated_programs import read

from privtab.base.request import Entity, Request
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import LazyShortcuts, PythonEngine
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

KEYS = ("catalog:c", "schema:c/s", "table:c/s/t")
OPERATIONS = {
    "use": "USE (table)",
    "read": "READ (table)",
    "both": "USE + READ (table)",
    "around": "USE (schema) or READ (table)",
}
MEANINGS = list(product(("none", "down"), ("none", "overrides"), ("", ", holds: [USE, READ]")))


def policy(inheritance: str, deny: str, holds: str) -> Program:
    """USE has the inheritance that the others have not; a grant of ALL gives it too."""
    own = "down" if inheritance == "none" else "none"
    program, found = read(
        "privtab: 1\nsystem: lake\nversion: '1'\nentities: {catalog: {schema: {table: }}}\n"
        f"privileges: {{USE: {{inheritance: {own}}}, READ: , ALL: {{implies: [USE, READ]}}}}\n"
        f"semantics: {{inheritance: {inheritance}, deny: {deny}, owner: {{kinds: [user]{holds}}}}}\n"
        f"tables: {{table: {{{', '.join(f'{name}: {text}' for name, text in OPERATIONS.items())}}}}}\n"
    )
    assert program is not None, found
    return program


def rows(deny: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What may be said of the caller: by name, through a role, and through a role within the schema."""
    for key in KEYS:
        yield "owners", {"owner": "user:ann", "entity": key}
        for privilege, effect in product(
            ("USE", "READ", "ALL"), ("allow", "deny") if deny == "overrides" else ("allow",)
        ):
            for grantee in ("user:ann", "role:r", "role:within"):
                cells = {"grantee": grantee, "effect": effect, "privilege": privilege, "entity": key}
                yield "grants", cells


def state(program: Program, chosen: tuple[tuple[str, dict[str, str]], ...]) -> State:
    tables: dict[str, list[dict[str, Any]]] = {
        "assignments": [
            {"principal": "user:ann", "role": "r"},
            {"principal": "user:ann", "role": "within", "scope": "schema:c/s"},
        ]
    }
    for table, cells in chosen:
        tables.setdefault(table, []).append(cells)
    found, findings = validate(program, from_tables(tables, "rows"))
    assert found is not None, findings
    return found


def held(
    meaning: tuple[str, str, str], chosen: tuple[tuple[str, dict[str, str]], ...], privilege: str, depth: int
) -> bool:
    """Whether ann holds a privilege on the key at a depth: from what the language says of grants, denials and owners."""
    inheritance, _, holds = meaning
    inherited = (inheritance == "down") != (privilege == "USE")
    counting = KEYS[: depth + 1] if inherited else KEYS[depth : depth + 1]
    effects: set[str] = set()
    for table, cells in chosen:
        if cells["entity"] not in counting:
            continue
        if table == "owners":
            effects |= {"owner"} if holds else set()
        else:
            names = {"allow": (privilege, "ALL"), "deny": (privilege,)}[cells["effect"]]
            if cells["privilege"] in names and (depth > 0 or cells["grantee"] != "role:within"):
                effects.add(cells["effect"])
    return "owner" in effects or effects == {"allow"}


def expected(meaning: tuple[str, str, str], chosen: tuple[tuple[str, dict[str, str]], ...]) -> dict[str, bool]:
    use, read_, use_schema = (held(meaning, chosen, *at) for at in (("USE", 2), ("READ", 2), ("USE", 1)))
    return {"use": use, "read": read_, "both": use and read_, "around": use_schema or read_}


@pytest.mark.parametrize(
    ("meaning", "every"),
    [
        # Each two words in each combination; all three together with slow tests.
        pytest.param(meaning, 35, marks=() if at.bit_count() % 2 else pytest.mark.slow)
        for at, meaning in enumerate(MEANINGS)
    ]
    + [pytest.param(meaning, 7, marks=pytest.mark.long) for meaning in MEANINGS],
)
def test_each_engine_answers_as_the_language_says(meaning: tuple[str, str, str], every: int) -> None:
    program = policy(*meaning)
    artifacts = policy_artifacts(program)
    everything = list(rows(meaning[1]))
    pairs = [*combinations(everything, 1), *list(combinations(everything, 2))[::every]]
    allowed = 0
    for chosen in pairs:
        found = state(program, chosen)
        engine = PythonEngine(artifacts.program, Index(index_document(program, found)))
        reference, shortcuts = Reference(program, found, artifacts.revision), LazyShortcuts(engine)
        requests = [Request(user="ann", action=name, resource=Entity("table", "c/s/t")) for name in OPERATIONS]
        columns = Batches(engine).allow_requests(requests)
        assert columns is not None
        for request, right, by_column in zip(requests, expected(meaning, chosen).values(), columns, strict=True):
            decision = reference.decide(request)
            allowed += right
            assert decision.allowed == right, (request, chosen)
            assert engine.decide_many([request]) == [decision], (request, chosen)
            assert (engine.allow(request), bool(by_column)) == (right, right), (request, chosen)
            assert shortcuts["table", request.action]("ann", "c/s/t") in (None, right), (request, chosen)
    assert len(pairs) < allowed < len(pairs) * 4
