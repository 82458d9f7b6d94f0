from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_key_of_a_row(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), requires: WRITE (shop)}}}\n", "P005")
    assert found.message == "duplicate key `requires`"
    assert found.help == "it already occurs on line 1: merge the two"
    assert found.under == "requires"


def test_a_table(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop: {open: READ (shop)}
          shop: {close: WRITE (shop)}
        """,
        "P005",
    )
    assert found.message == "duplicate key `shop`"
    assert found.help == "it already occurs on line 2: merge the two"
    assert found.under == "shop"
