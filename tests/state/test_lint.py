"""`privtab state validate --lint`: each finding, and nothing about rows that are as they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from privtab.base.moments import parse_moment
from privtab.ir.nodes import Program
from privtab.state.lint import duration, lint
from privtab.state.load import from_tables, validate_with_places

NOW = parse_moment("2026-03-15T00:00:00Z")
PAST, SOON, LATE = "2026-03-01T00:00:00Z", "2026-03-20T00:00:00Z", "2026-09-01T00:00:00Z"
GRANT = {"grantee": "role:r", "effect": "allow", "privilege": "SELECT", "entity": "table:l/s/t"}
HELD = {"principal": "group:g", "role": "r"}
IN = {"user": "a", "group": "g"}
GOOD: dict[str, list[dict[str, str]]] = {"grants": [GRANT], "assignments": [HELD], "memberships": [IN]}


@pytest.fixture
def found(program: Program) -> Callable[..., list[tuple[str, str, int]]]:
    def run(**tables: list[dict[str, str]]) -> list[tuple[str, str, int]]:
        state, places, findings = validate_with_places(program, from_tables(GOOD | tables, "state.json"))
        assert not [f for f in findings if f.severity == "error"], findings
        linted = lint(program, state, places, at=NOW, soon=duration("14d"))
        assert all(f.help for f in linted)
        return [(f.code, f.place.table, f.place.row) for f in linted]

    return run


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({}, []),
        ({"grants": [{**GRANT, "from": PAST, "until": LATE}]}, []),
        ({"memberships": [IN, {**IN, "user": "b", "until": PAST}]}, [("S201", "memberships", 2)]),
        ({"assignments": [{**HELD, "until": SOON}]}, [("S203", "assignments", 1)]),
        ({"assignments": [{**HELD, "from": SOON}]}, []),
        ({"grants": [GRANT, {**GRANT, "grantee": "user:a"}]}, [("S206", "grants", 2)]),
        ({"grants": [GRANT, {**GRANT, "grantee": "user:a", "effect": "deny"}]}, []),
        ({"grants": [GRANT, {**GRANT, "until": LATE}]}, [("S207", "grants", 2)]),
        (
            {"grants": [{**GRANT, "until": LATE}, {**GRANT, "until": SOON}]},
            [("S203", "grants", 2), ("S207", "grants", 2)],
        ),
        ({"grants": [{**GRANT, "until": SOON}, {**GRANT, "from": SOON}]}, [("S203", "grants", 1)]),
        ({"assignments": [HELD, {**HELD, "scope": "lake:l"}]}, [("S207", "assignments", 2)]),
        ({"grants": [GRANT, {**GRANT, "privilege": "ALL"}]}, [("S207", "grants", 1)]),
    ],
)
def test_each_finding(found: Callable[..., Any], tables: dict[str, Any], expected: list[Any]) -> None:
    assert found(**tables) == expected


def test_grants_below_one_that_is_inherited(found: Callable[..., Any], program: Program) -> None:
    above = {**GRANT, "entity": "lake:l"}
    inherited = program.semantics.inheritance == "down"
    assert found(grants=[GRANT, above]) == ([("S207", "grants", 1)] if inherited else [])
    assert found(grants=[GRANT, {**above, "until": LATE}]) == []


def test_unassigned_roles(found: Callable[..., Any]) -> None:
    assert ("S205", "grants", 2) in found(grants=[GRANT, {**GRANT, "grantee": "role:nobody"}])


@pytest.mark.parametrize("text", ["", "d", "14", "1.5d", "-1d", "14y", "٣d", "9999999d"])
def test_durations(text: str) -> None:
    assert duration("2w") == 14 * 86400 * 10**9
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)
