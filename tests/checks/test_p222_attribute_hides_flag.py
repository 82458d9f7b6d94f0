from __future__ import annotations

from collections.abc import Callable
from typing import Any

DECLARED = "attributes: {request: {urgent: bool}, user: {rank: {integer: true, from: request}}}\n"


def test_a_flag_with_the_name_of_an_attribute(only: Callable[..., Any]) -> None:
    found = only(DECLARED + "tables: {shelf: {look: READ (shelf) and (WRITE (shelf) when urgent)}}\n", "P222")
    assert found.message == "`urgent` is an attribute of the request: the context cannot hold a flag of this name"
    assert found.under == "urgent"


def test_attributes_of_users_hide_no_flag(codes: Callable[[str], list[str]]) -> None:
    text = DECLARED + "tables: {shelf: {look: READ (shelf) and (WRITE (shelf) when rank) and request.urgent}}\n"
    assert "P222" not in codes(text)
