from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("word", ["any", "first", "every"])
def test_a_type_that_does_not_nest(word: str, only: Callable[..., Any]) -> None:
    found = only(f"tables:\n  item: {{read: READ ({word} shelf)}}\n", "P218")
    assert found.message == f"`{word} shelf` names one of several levels, and `shelf` has only one on a path"
    assert found.help == "write `shelf`"
    assert found.under == f"{word} shelf"


def test_an_unknown_word(only: Callable[..., Any]) -> None:
    found = only("types: {shelf: {nested: true}}\ntables:\n  item: {read: READ (evry shelf)}\n", "P218")
    assert found.message == "unknown word `evry` before `shelf`"
    assert found.help == "did you mean `every`?"


def test_an_object(codes: Callable[[str], list[str]]) -> None:
    row = "{with: {to: shelf}, requires: READ (any to)}"
    assert "P218" in codes(f"types: {{shelf: {{nested: true}}}}\ntables:\n  item: {{read: {row}}}\n")


def test_levels_of_a_type_that_nests(codes: Callable[[str], list[str]]) -> None:
    rows = "read: READ (any shelf), write: 'WRITE (every shelf, first shelf)'"
    text = f"types: {{shelf: {{nested: true}}}}\ntables:\n  item: {{{rows}}}\n"
    assert not [code for code in codes(text) if code.startswith(("P0", "P1", "P2"))]
