from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_unclosed_list(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: [READ\n", "P002")
    assert found.message == "while parsing a flow sequence: expected ',' or ']', but got ':'"
    assert found.help == "close the list with `]`, or separate its items by commas"


def test_text_with_a_colon_and_a_space(only: Callable[..., Any]) -> None:
    found = only("title: shops: open\n", "P002")
    assert found.message == "mapping values are not allowed here"
    assert found.help == "put text that holds `: ` in quotes, and check the indentation of this line"
    assert found.under == ":"


def test_a_tab_that_indents(only: Callable[..., Any]) -> None:
    found = only("tables:\n\tshop: {open: READ (shop)}\n", "P002")
    assert found.message == "a tab cannot indent YAML"
    assert found.help == "use spaces"
    assert found.under == "\t"
