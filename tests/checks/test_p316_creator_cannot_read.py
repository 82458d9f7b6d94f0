from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_the_grant_is_not_what_reading_takes(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {create: {requires: WRITE (shop), grants: WRITE (shelf)}, get: READ (shelf)}}\n", "P316"
    )
    assert (
        found.message
        == "the creator of a `shelf` cannot read it: `create` gives `WRITE`, which is not enough for `get`"
    )
    assert found.help == "grant what `get` requires"
    assert found.under == "create"


def test_a_child_that_an_effect_names(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {fill: {requires: WRITE (shelf), grants: WRITE (item)}}, item: {view: READ (item)}}\n", "P316"
    )
    assert (
        found.message == "the creator of a `item` cannot read it: `fill` gives `WRITE`, which is not enough for `view`"
    )


def test_one_way_to_create_is_not_enough(codes: Callable[[str], list[str]]) -> None:
    row = "create: {requires: READ (shop) or WRITE (shop), grants: WRITE (shelf)}"
    assert "P316" in codes(f"tables: {{shelf: {{{row}, get: READ (shop) and WRITE (shelf)}}}}\n")


@pytest.mark.parametrize(
    "text",
    [
        "tables: {shelf: {create: {requires: WRITE (shop), grants: READ (shelf)}, get: READ (shelf)}}",
        "tables: {shelf: {create: {requires: READ (shop), grants: WRITE (shelf)}, get: READ (shop) and WRITE (shelf)}}",
        "tables: {shelf: {create: {requires: WRITE (shop), grants: WRITE (shelf)}, fill: READ (shelf)}}",
        (
            "semantics: {inheritance: down, deny: overrides}\n"
            "tables: {shelf: {create: {requires: READ (shop), grants: WRITE (shelf)}, get: READ (shelf)}}"
        ),
        "semantics: {owner: {creator: true, holds: READ}}\ntables: {shelf: {create: WRITE (shop), get: READ (shelf)}}",
        "tables: {shelf: {create: {requires: WRITE (shop), grants: WRITE (shelf)}, list: READ (shop) or WRITE (shop)}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P316" not in codes(f"{text}\n")


NESTED = """\
types: {shelf: {nested: true}}
semantics: {inheritance: INHERITANCE}
tables:
  shelf: {create: {requires: WRITE (parent), grants: READ (shelf)}, get: READ (LEVEL)}
"""


@pytest.mark.parametrize(
    ("inheritance", "level", "finds"),
    [
        ("none", "shelf", False),
        ("none", "any shelf", False),
        ("none", "every shelf", True),
        ("none", "first shelf", True),
        ("none", "parent", True),
        ("down", "shelf", False),
        ("down", "every shelf", True),
    ],
)
def test_the_levels_of_a_type_that_nests(
    codes: Callable[[str], list[str]], inheritance: str, level: str, finds: bool
) -> None:
    text = NESTED.replace("INHERITANCE", inheritance).replace("LEVEL", level)
    assert ("P316" in codes(text)) is finds
    # What is required of the parent is inherited by the created one; the outermost lies in a shop.
    held = text.replace("WRITE (parent)", "READ (parent)").replace("grants: READ", "grants: WRITE")
    assert ("P316" in codes(held)) is (level == "every shelf" if inheritance == "down" else level != "parent")
