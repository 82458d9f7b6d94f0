from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_two_rows(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: can close (shop)
            close: can open (shop)
        """,
        "P204",
    )
    assert found.message == "`can` forms a cycle: `shop/open` → `shop/close` → `shop/open`"
    assert found.help == "one of these rows must state its own requirements"
    assert found.under == "close"


def test_a_row_that_requires_itself(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: can open (shop)}}\n", "P204")
    assert found.message == "`can` forms a cycle: `shop/open` → `shop/open`"
    assert found.help == "one of these rows must state its own requirements"
    assert found.under == "open"


def test_through_an_object(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            look: can turn (shop)
            turn: READ (shop) or can look (shop)
        """,
        "P204",
    )
    assert found.message == "`can` forms a cycle: `shop/look` → `shop/turn` → `shop/look`"
    assert found.help == "one of these rows must state its own requirements"
    assert found.under == "turn"


def test_a_row_for_many_types_is_one_circle(only: Callable[..., Any]) -> None:
    assert only("core: {look: can look (entity)}\n", "P204").under == "look"
