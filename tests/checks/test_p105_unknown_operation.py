from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_operation(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop: {load: READ (shop)}
          shelf: {load: can laod (shop)}
        """,
        "P105",
    )
    assert found.message == "unknown operation `laod` on `shop`"
    assert found.help == "did you mean `load`?"
    assert found.under == "laod"


def test_a_type_without_rows(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {load: can look (shop)}}\n", "P105")
    assert found.message == "unknown operation `look` on `shop`"
    assert found.help == "it has no rows at all"
    assert found.under == "look"


def test_an_object_of_any_type(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shop: {load: READ (shop), link: {with: {other: any}, requires: can laod (other)}}}
        """,
        "P105",
    )
    assert found.message == "unknown operation `laod` on `shop`, `shelf`, `item`, `user` or `role`"
    assert found.help == "did you mean `load`?"
    assert found.under == "laod"
