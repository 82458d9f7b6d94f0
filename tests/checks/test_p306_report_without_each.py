from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_no_items(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {close: {requires: READ/WRITE (shop), report: errors}}}\n", "P306")
    assert found.message == "the row `close` reports items, but has no `each`"
    assert found.help == "say which items pass: `each: ADMIN (entity)`, or drop `report`"
    assert found.under == "errors"


def test_no_finding_items(codes: Callable[[str], list[str]]) -> None:
    assert "P306" not in codes("tables: {shop: {close: {each: READ/WRITE (shop), report: errors}}}\n")
