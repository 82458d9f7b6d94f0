from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_alternative_stricter_than_another(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop) and WRITE (shop) or READ (shop)}}\n", "P310")
    assert found.message == "this alternative is never needed: another alternative requires less"
    assert found.help == "drop it, or check what it was meant to say"
    assert found.under == "READ"


def test_an_alternative_that_occurs_twice(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: [READ]
        tables: {shop: {open: READ (shop) or READ (entity)}}
        """,
        "P310",
    )
    assert found.message == "this alternative occurs twice"
    assert found.help == "drop it, or check what it was meant to say"
    assert found.under == "READ"


def test_in_parentheses(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shop: {open: WRITE (shop) and (READ (shop) or READ (shop) and owner (shop))}}
        semantics: {owner: {kinds: [user]}}
        """,
        "P310",
    )
    assert found.message == "this alternative is never needed: another alternative requires less"
    assert found.help == "drop it, or check what it was meant to say"
    assert found.under == "READ"


def test_no_finding_different_things(codes: Callable[[str], list[str]]) -> None:
    assert "P310" not in codes("tables: {shop: {open: READ (shop) or WRITE (shop)}}\n")


def test_parentheses_within_alternatives_make_no_difference(only: Callable[..., Any]) -> None:
    cell = "(READ (shop) or WRITE (shop)) or (READ (shop) or SHARE (shop))"
    found = only(f"privileges: [READ, WRITE, SHARE]\ntables: {{shop: {{open: {cell}}}}}\n", "P310")
    assert found.message == "this alternative occurs twice"


def test_comparisons_that_follow_from_others(only: Callable[..., Any]) -> None:
    attributes = "attributes: {entity: {color: {enum: [red, blue, gray]}}}\n"
    cell = "READ (shelf) and shelf.color in {red, blue} or READ (shelf) and shelf.color = red"
    found = only(attributes + f"tables: {{shelf: {{look: '{cell}'}}}}\n", "P310")
    assert found.message == "this alternative is never needed: another alternative requires less"
