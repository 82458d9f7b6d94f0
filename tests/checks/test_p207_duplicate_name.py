from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_entity_type_in_two_places(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: {shelf: {item: }, depot: {item: {box: }}}}
        tables: {box: {look: READ (shop)}}
        """,
        "P207",
    )
    assert found.message == "entity type `item` is declared twice"
    assert found.help == "line 1 declares `item`: every name is unique in a file"
    assert found.under == "item"


def test_a_privilege_listed_twice(only: Callable[..., Any]) -> None:
    found = only("privileges: [READ, WRITE, READ]\n", "P207")
    assert found.message == "privilege `READ` is declared twice"
    assert found.help == "line 1 declares `READ`: every name is unique in a file"
    assert found.under == "READ"


def test_a_set_called_like_a_privilege(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: [READ, WRITE]
        sets: {READ: [WRITE]}
        """,
        "P207",
    )
    assert found.message == "name `READ` is declared twice"
    assert found.help == "line 1 declares `READ`: every name is unique in a file"
    assert found.under == "READ"
