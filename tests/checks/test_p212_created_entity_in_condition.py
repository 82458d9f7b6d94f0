from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_the_entity_itself(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {create: {requires: WRITE (shelf), creates: true}}}\n", "P212")
    assert found.message == "the row creates the `shelf`, but its condition refers to it"
    assert found.help == "require something on its parent (`parent`), or drop `creates`"
    assert found.under == "true"


def test_through_can(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shelf: {load: READ (shelf), create: {requires: can load (entity), creates: true}}}
        """,
        "P212",
    )
    assert found.message == "the row creates the `shelf`, but its condition refers to it"
    assert found.help == "require something on its parent (`parent`), or drop `creates`"
    assert found.under == "true"
