from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("cell", "under"),
    [
        ("READ (shop) and READ (shop)", "READ"),
        ("READ (shop) and (READ (shop) or WRITE (shop))", "READ"),
        ("can enter (shop) and READ (shop)", "READ"),
        ("WRITE (shelf) and can enter (shop) and READ (shop)", "READ"),
        ("WRITE (shelf) or can enter (shop) and READ (shop)", "READ"),
        ("(WRITE (shelf) and READ (shop)) and (READ (shelf) and can enter (shop))", "enter"),
    ],
)
def test_a_condition_implied_by_the_one_beside_it(only: Callable[..., Any], cell: str, under: str) -> None:
    found = only(f"tables: {{shop: {{enter: READ (shop)}}, shelf: {{open: {cell}}}}}\n", "P328")
    assert found.message == "this condition adds nothing: the conditions next to it require as much"
    assert found.help == "drop it, or check what it was meant to say"
    assert found.under == under


def test_the_gate_is_enough(only: Callable[..., Any]) -> None:
    found = only("semantics: {gate: member (shop)}\ntables: {shelf: {open: READ (shelf) and member (shop)}}\n", "P328")
    assert found.message == "this condition adds nothing: the gate requires it"
    assert found.under == "shop"


def test_a_row_for_many_types_must_be_so_for_all(codes: Callable[[str], list[str]]) -> None:
    row = "any: {open: {requires: READ (shop) and READ (entity), for: [%s]}}\n"
    assert "P328" in codes(row % "shop")
    assert "P328" not in codes(row % "shop, shelf")


@pytest.mark.parametrize(
    "cell", ["READ (shop) and WRITE (shop)", "anyone and (READ (shop) when strict)", "READ (shop) and READ (shelf)"]
)
def test_no_finding(codes: Callable[[str], list[str]], cell: str) -> None:
    assert "P328" not in codes(f"tables: {{shelf: {{open: {cell}}}}}\n")
