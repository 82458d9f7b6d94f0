from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_equal_condition_written_differently(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {look: READ (shelf)}}\nvariants: {strict: {tables: {shelf: {look: READ (entity)}}}}\n", "P330"
    )
    assert found.message == "`shelf/look` of the variant `strict` means the same as the row of the file"
    assert found.help == "drop it, or write what the variant changes"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    rows = "{shelf: {look: READ + WRITE (shelf), fill: WRITE (shelf)}}"
    assert "P330" not in codes(f"tables: {{shelf: {{look: READ (shelf)}}}}\nvariants: {{strict: {{tables: {rows}}}}}\n")
