from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_list_for_a_condition(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {each: [READ, WRITE]}}}\n", "P008")
    assert found.message == "`each` must be a condition, not a list"
    assert found.help == "a condition reads `READ (TYPE)`"
    assert found.under == "[READ, WRITE]"


def test_a_number_for_text(only: Callable[..., Any]) -> None:
    found = only("title: 5\n", "P008")
    assert found.message == "`title` must be text, not the number `5`"
    assert found.help == 'put it in quotes: "5"'
    assert found.under == "5"


def test_text_for_a_flag(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {create: {requires: READ (shop), creates: yes, gate: none}}}\n", "P008")
    assert found.message == "`creates` must be `true` or `false`, not text"
    assert found.help == "write `true`"
    assert found.under == "yes"


def test_a_list_of_entity_types(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: [shop, shelf]
        tables: {shop: {open: READ (shop)}}
        """,
        "P008",
    )
    assert found.message == "`entities` must be a mapping, not a list"
    assert found.help == "write `entities: {TYPE: {TYPE: }}`"
    assert found.under == "[shop, shelf]"


def test_a_list_inside_an_entity_type(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: [shelf, item]}
        tables: {shelf: {open: READ (shop)}}
        """,
        "P008",
    )
    assert found.message == "`shop` must be a mapping of the types inside it, or nothing, not a list"
    assert found.help == "write {shelf: , item: }"
    assert found.under == "[shelf, item]"


def test_nothing_for_a_condition(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: }}}\n", "P008")
    assert found.message == "`requires` must be a condition, not nothing"
    assert found.help == "a condition reads `READ (TYPE)`"
