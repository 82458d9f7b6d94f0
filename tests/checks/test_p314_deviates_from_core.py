from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("row", "difference"),
    [
        ("READ/WRITE (shelf)", "allows more than"),
        ("READ + WRITE (shelf)", "allows less than"),
        ("WRITE (shelf)", "allows and refuses other callers than"),
        ("{requires: READ (shelf), revokes: READ (shelf)}", "has other effects than"),
        ("{requires: READ (shelf), each: READ (shelf)}", "allows more than"),
        ("{requires: READ (shelf) and READ (to), with: {to: shop}}", "takes other objects than"),
    ],
)
def test_the_message_names_the_difference(only: Callable[..., Any], row: str, difference: str) -> None:
    found = only(f"core: {{open: READ (entity)}}\ntables: {{shelf: {{open: {row}}}}}\n", "P314")
    assert found.message == f"the row `shelf/open` {difference} the core row"
    assert found.help == "explain why in a `note`, or drop the row so that the core row applies"
    assert found.under == "open"


def test_many_types_are_one_finding(only: Callable[..., Any]) -> None:
    found = only(
        "core: {open: READ (entity)}\ntables: {shop: {open: WRITE (shop)}, shelf: {open: WRITE (shelf)}}\n", "P314"
    )
    assert (
        found.help
        == "explain why in a `note`, or drop the row so that the core row applies; the same applies to `shelf/open`"
    )


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    text = "core: {open: READ (entity)}\ntables: {shelf: {open: READ (shelf)}}\n"
    assert "P314" not in codes(text)


def test_a_core_row_about_the_parent_is_not_for_roots(codes: Callable[[str], list[str]]) -> None:
    assert "P314" not in codes("core: {close: WRITE (parent)}\ntables: {shop: {close: READ (shop)}}\n")
