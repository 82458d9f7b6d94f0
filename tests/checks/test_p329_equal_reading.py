from __future__ import annotations

from collections.abc import Callable
from typing import Any


def text(readings: str) -> str:
    row = f"{{requires: READ (shelf) and WRITE (shelf), ambiguous: {{why: Icons., readings: {{{readings}}}}}}}"
    return f"tables: {{shelf: {{fill: {row}}}}}\n"


def test_the_same_as_the_row(only: Callable[..., Any]) -> None:
    found = only(text("joined: WRITE + READ (shelf)"), "P329")
    assert found.message == "the reading `joined` means the same as the row itself"
    assert found.help == "drop it, or write what it was meant to say: choosing it changes no answer"
    assert found.under == "joined"


def test_the_same_as_another_reading(only: Callable[..., Any]) -> None:
    found = only(text("one: READ/WRITE (shelf), two: WRITE/READ (shelf)"), "P329")
    assert found.message == "the reading `two` means the same as the reading `one`"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    assert "P329" not in codes(text("one: READ (shelf), two: {grants: READ (shelf)}, three: {each: READ (shelf)}"))


def test_a_row_for_many_types_must_be_so_for_all(codes: Callable[[str], list[str]]) -> None:
    row = "{requires: READ (shop), for: [%s], ambiguous: {why: Icons., readings: {own: READ (entity)}}}"
    assert "P329" in codes(f"any: {{open: {row % 'shop'}}}\n")
    assert "P329" not in codes(f"any: {{open: {row % 'shop, shelf'}}}\n")
