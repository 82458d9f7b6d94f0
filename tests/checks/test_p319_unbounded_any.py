from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_row_for_every_type(only: Callable[..., Any]) -> None:
    found = only("any: {ping: anyone}\n", "P319")
    assert found.message == "`ping` exists on every type, and nothing is required"
    assert found.help == "name the types it is for: `for: [TYPE]`"
    assert found.under == "ping"


def test_nothing_but_the_gate(only: Callable[..., Any]) -> None:
    found = only(
        "semantics: {gate: member (shop)}\ncore: {ping: anyone}\ntables: {shop: {look: READ (shop)}}\n", "P319"
    )
    assert found.message == "`ping` exists on every type, and nothing is required beyond the gate"
    assert found.help == "require something, or give types rows"


def test_an_object_that_may_be_anything(only: Callable[..., Any]) -> None:
    found = only(
        """\
        semantics: {owner: {kinds: [user]}}
        tables: {shelf: {attach: {with: {what: any}, requires: READ (shelf) and owner (what)}}}
        """,
        "P319",
    )
    assert found.message == "`what` may be an entity of any type at all"
    assert found.under == "what"


@pytest.mark.parametrize(
    "text",
    [
        "any: {ping: {requires: anyone, for: [shop]}}",
        "any: {ping: READ (entity)}",
        "core: {list: {requires: READ (parent), each: anyone}}",
        "tables: {shelf: {look: READ (shelf), attach: {with: {what: any}, requires: READ (shelf) and can look (what)}}}",
        "tables: {shelf: {ping: anyone}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P319" not in codes(f"{text}\n")
