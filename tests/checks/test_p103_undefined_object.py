from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_object(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {item: {price: {with: {template: shelf}, requires: READ (item) and READ (tmplate)}}}
        """,
        "P103",
    )
    assert found.message == "undefined object `tmplate`"
    assert found.help == "did you mean `template`?"
    assert found.under == "tmplate"


def test_an_object_that_was_never_declared(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {price: READ (currency)}}\n", "P103")
    assert found.message == "undefined object `currency`"
    assert (
        found.help
        == "targets here are `shop`, `shelf` and `item`; a further object is declared by `with: {currency: TYPE}`"
    )
    assert found.under == "currency"
