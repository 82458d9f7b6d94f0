from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def chain(length: int, order: Callable[[list[str]], list[str]]) -> str:
    rows = ["op0: READ (shop)", *(f"op{i}: can op{i - 1} (shop)" for i in range(1, length))]
    return "tables:\n  shop:\n" + "".join(f"    {row}\n" for row in order(rows))


@pytest.mark.parametrize("order", [list, lambda rows: rows[::-1]], ids=["down", "up"])
def test_a_chain_of_many_rows(order: Callable[[list[str]], list[str]], only: Callable[..., Any]) -> None:
    found = only(chain(120, order), "P216")
    assert found.message == "the condition of `shop/op75` goes more than 150 levels down, through `can`"
    assert found.help == "say in this row what is required, or refer to a row further down the chain"
    assert found.under == "op75"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    assert "P216" not in codes(chain(75, list))
