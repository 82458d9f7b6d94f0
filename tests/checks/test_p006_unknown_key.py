from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_key_of_a_row_is_read_as_what_it_was_meant_to_be(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {require: READ (shop)}}}\n", "P006")
    assert found.message == "unknown key `require` in a row"
    assert found.help == "did you mean `requires`?"
    assert found.under == "require"


def test_a_misspelt_section_makes_no_further_findings(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privilege: [READ, WRITE]
        tables: {shop: {open: READ (shop)}}
        privtab: 1
        system: shop
        version: '1'
        entities: {shop: }
        """,
        "P006",
    )
    assert found.message == "unknown key `privilege` in a policy file"
    assert found.help == "did you mean `privileges`?"
    assert found.under == "privilege"


def test_a_key_like_no_other(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), colour: red}}}\n", "P006")
    assert found.message == "unknown key `colour` in a row"
    assert (
        found.help
        == "the keys of a row are `requires`, `each`, `report`, `grants`, `becomes`, `revokes`, `delegates`, `withdraws`, `title`, `with`, `flags` and 9 more"
    )
    assert found.under == "colour"
