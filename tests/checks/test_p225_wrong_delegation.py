from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("name", "type_"), [("memberships", "shop"), ("members", "shop"), ("member", "shop"), ("grants", "shop")]
)
def test_rows_that_the_request_cannot_name(only: Callable[..., Any], name: str, type_: str) -> None:
    found = only(f"tables: {{{type_}: {{give: {{requires: READ (shop), delegates: {name}}}}}}}\n", "P225")
    assert found.message == f"a request about a `{type_}` cannot name who gets `{name}`"
    assert found.help == "write a privilege, a set, `any privilege`, `owner` or `assignments`"
    assert found.under == name


def test_another_entity(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {give: {requires: READ (shop), withdraws: READ (shop)}}}\n", "P225")
    assert found.message == "a delegation is about the entity of the row, of type `item`, and `shop` is not it"
    assert found.under == "shop"
