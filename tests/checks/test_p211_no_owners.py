from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_condition(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop) or owner (shop)}}\n", "P211")
    assert found.message == "the condition refers to owners, but the file has none"
    assert found.help == "say what ownership means: `semantics: {owner: {creator: true}}`"
    assert found.under == "owner"


def test_an_effect(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), becomes: owner}}}\n", "P211")
    assert found.message == "the effect refers to owners, but the file has none"
    assert found.help == "say what ownership means: `semantics: {owner: {creator: true}}`"
    assert found.under == "owner"


def test_a_mistake_in_semantics_is_reported_once(only: Callable[..., Any]) -> None:
    found = only(
        """\
        semantics: {owner: yes}
        tables: {shop: {open: READ (shop) or owner (shop)}}
        """,
        "P008",
    )
    assert found.message == "`owner` must be `none` or a mapping, not text"
    assert found.help == "write `owner: {creator: true}`"
    assert found.under == "yes"
