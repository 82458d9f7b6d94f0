from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

OWNERS = "semantics: {owner: {kinds: [user]}}\n"


@pytest.mark.parametrize(
    ("cell", "under"),
    [
        ("READ (shop) when urgent", "when urgent"),
        ("READ (shop) or WRITE (shop) when urgent", "when urgent"),
        ("WRITE (shop) when urgent or READ (shop)", "when urgent"),
        ("(READ (shop) or WRITE (shop)) when urgent", "when urgent"),
        ("(READ (shop) and WRITE (shop)) when urgent", "when urgent"),
        ("READ (shop) and WRITE (shop) or owner (shop)  when  urgent", "when  urgent"),
        ("READ (shop) and (owner (shop) or READ (shop)) or (WRITE (shop) when urgent)", "when urgent"),
        ("(READ (shop) or owner (shop) when urgent) and (WRITE (shop) when urgent)", "when urgent"),
    ],
)
def test_a_flagged_condition_alone(only: Callable[..., Any], cell: str, under: str) -> None:
    found = only(f"{OWNERS}tables: {{shop: {{open: {cell}}}}}\n", "P311")
    assert found.message == "without the flag `urgent` this condition holds for every caller"
    assert found.help == "put it beside what is always required: `A and (B when urgent)`"
    assert found.under == under


@pytest.mark.parametrize("word", ["and", "or"])
def test_several_flags_are_one_finding(only: Callable[..., Any], word: str) -> None:
    found = only(f"tables: {{shop: {{open: READ (shop) when urgent {word} WRITE (shop) when late}}}}\n", "P311")
    assert found.message == "without the flags `urgent` and `late` this condition holds for every caller"
    assert found.help == "put it beside what is always required: `A and (B when urgent)`"
    assert found.under == "when urgent"


def test_items_of_a_listing(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {list: {requires: READ (shop), each: READ (shelf) when strict}}}\n", "P311")
    assert found.message == "without the flag `strict` this condition holds for every caller"
    assert found.under == "when strict"


def test_a_row_for_many_types_is_one_finding(codes: Callable[[str], list[str]]) -> None:
    assert codes("any: {open: READ (entity) when urgent}\n").count("P311") == 1


@pytest.mark.parametrize(
    "cell",
    [
        "READ (shop) and WRITE (shop) when urgent",
        "WRITE (shop) when urgent and READ (shop)",
        "READ (shop) and (owner (shop) or WRITE (shop) when urgent)",
        "READ (shop) or owner (shop) and WRITE (shop) when urgent",
        "self and (WRITE (shop) when urgent)",
        "can look (shop) and (WRITE (shop) when urgent)",
        "anyone and (WRITE (shop) when urgent)",
        "anyone or WRITE (shop) when urgent",
        "anyone when urgent",
        "anyone",
    ],
)
def test_no_finding(find: Callable[[str], list[Any]], cell: str) -> None:
    found = find(f"{OWNERS}tables: {{shop: {{look: READ (shop)}}, user: {{open: {cell}}}}}\n")
    assert [d for d in found if d.severity == "error" or d.code == "P311"] == []
