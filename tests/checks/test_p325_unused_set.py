from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_leftover(only: Callable[..., Any]) -> None:
    found = only("sets: {EDITOR: [READ, WRITE]}\n", "P325")
    assert found.message == "no row, role or set uses the set `EDITOR`"
    assert found.help == "keep it if states grant it by that name; else drop it"
    assert found.under == "EDITOR"


@pytest.mark.parametrize(
    "use",
    [
        "tables: {shelf: {look: EDITOR (shelf)}}",
        "tables: {shelf: {look: {requires: READ (shop), grants: EDITOR (shelf)}}}",
        "roles: {boss: {grants: {shelf: [EDITOR]}}}",
        "semantics: {owner: {holds: EDITOR}}",
        "tables: {shelf: {look: {requires: READ (shelf), ambiguous: {why: Icons., readings: {all: EDITOR (shelf)}}}}}",
        "variants: {old: {tables: {shelf: {look: EDITOR (shelf)}}}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], use: str) -> None:
    assert "P325" not in codes(f"sets: {{EDITOR: [READ, WRITE]}}\n{use}\n")


def test_a_condition_that_no_row_uses(only: Callable[..., Any]) -> None:
    found = only("conditions: {KEEPER: READ (shop)}\ntables: {shelf: {look: READ/WRITE (shop)}}\n", "P325")
    assert found.message == "no row uses the condition `KEEPER`"
    assert found.under == "KEEPER"


@pytest.mark.parametrize("use", ["tables: {shelf: {look: KEEPER (shelf)}}", "semantics: {gate: KEEPER (shop)}"])
def test_conditions_that_are_used(codes: Callable[[str], list[str]], use: str) -> None:
    text = f"conditions: {{KEEPER: EDITOR (shop)}}\nsets: {{EDITOR: [READ, WRITE]}}\n{use}\n"
    assert "P325" not in codes(text)
