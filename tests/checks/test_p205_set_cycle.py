from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_two_sets(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sets: {A: [READ, B], B: [WRITE, A]}
        tables: {shop: {open: READ/WRITE/A (shop)}}
        """,
        "P205",
    )
    assert found.message == "the sets `A` and `B` contain each other"
    assert found.help == "sets must eventually resolve to privileges"
    assert found.under == "A"


def test_a_set_that_contains_itself(only: Callable[..., Any]) -> None:
    found = only("sets: {A: [READ, A]}\n", "P205")
    assert found.message == "the set `A` contains itself"
    assert found.help == "sets must eventually resolve to privileges"
    assert found.under == "A"
