from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_note_alone(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {note: as in the manual}}}\n", "P208")
    assert found.message == "the row `open` has neither `requires` nor `each`"
    assert found.help == "say who may: `requires: READ (TYPE)`, or `requires: anyone`"
    assert found.under == "open"


def test_an_empty_row(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: }}\n", "P208")
    assert found.message == "the row `open` has neither `requires` nor `each`"
    assert found.help == "say who may: `requires: READ (TYPE)`, or `requires: anyone`"
    assert found.under == "open"
