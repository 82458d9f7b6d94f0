from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_cycle_of_two(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , A: {alias_of: B}, B: {alias_of: A}}
        tables: {shop: {open: READ/A/B (shop)}}
        """,
        "P203",
    )
    assert found.message == "aliases form a cycle: `A` → `B` → `A`"
    assert found.help == "one of them must be a privilege of its own"
    assert found.under == "B"


def test_an_alias_of_itself(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , A: {alias_of: A}}
        tables: {shop: {open: READ (shop)}}
        """,
        "P203",
    )
    assert found.message == "aliases form a cycle: `A` → `A`"
    assert found.help == "one of them must be a privilege of its own"
    assert found.under == "A"
