from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ("shop: {nested: true}", "`shop` cannot nest: nothing contains it"),
        ("user: {nested: 3}", "`user` cannot nest: its entities are principals, and a principal's name is one name"),
        ("shelf: {nested: true, single: true}", "`shelf` cannot nest: there is one per parent"),
    ],
)
def test_types_that_cannot_nest(types: str, message: str, only: Callable[..., Any]) -> None:
    assert only(f"types: {{{types}}}\n", "P219").message == message


@pytest.mark.parametrize("target", ["parent", "any shelf", "first shelf", "every shelf"])
def test_can_about_a_level(target: str, only: Callable[..., Any]) -> None:
    text = f"types: {{shelf: {{nested: true}}}}\ntables:\n  shelf: {{look: READ (shelf), move: can look ({target})}}\n"
    found = only(text, "P219")
    assert found.message == f"`can` asks about one entity, and `{target}` is not always an entity of the same type"
    assert found.under == target


def test_a_type_with_a_container(codes: Callable[[str], list[str]]) -> None:
    text = "types: {shelf: {nested: true}}\ntables:\n  item: {look: READ (item), move: can look (item)}\n"
    assert "P219" not in codes(text)


@pytest.mark.parametrize("levels", ["0", "65", "-1"])
def test_a_wrong_number_of_levels(levels: str, only: Callable[..., Any]) -> None:
    found = only(f"types: {{shelf: {{nested: {levels}}}}}\n", "P009")
    assert (found.message, found.help) == (
        f"`{levels}` is not a value of `nested`",
        "a type may nest to 1 to 64 levels",
    )


ATTRIBUTES = "types: {shelf: {nested: true}}\nattributes: {entity: {color: {enum: [red, blue]}}}\n"


def test_an_attribute_of_a_level(only: Callable[..., Any]) -> None:
    found = only(f"{ATTRIBUTES}tables:\n  shelf: {{look: READ (shelf) and parent.color = red}}\n", "P219")
    assert found.message == "an attribute is that of one entity, and `parent` is not always one of the same type"
    assert found.help == "name a type: that means the nearest one"


def test_several_levels_on_both_sides(only: Callable[..., Any]) -> None:
    found = only(f"{ATTRIBUTES}tables:\n  item: {{look: any shelf.color = every shelf.color}}\n", "P219")
    assert found.message == "`shelf.color` is compared with several levels, and is that of several itself"


@pytest.mark.parametrize("level", ["any", "every", "first"])
def test_an_attribute_of_several_levels(level: str, codes: Callable[[str], list[str]]) -> None:
    assert "P219" not in codes(f"{ATTRIBUTES}tables:\n  item: {{look: {level} shelf.color = item.color}}\n")


def test_an_attribute_of_the_nearest_level(codes: Callable[[str], list[str]]) -> None:
    assert "P219" not in codes(f"{ATTRIBUTES}tables:\n  item: {{look: READ (item) and shelf.color = item.color}}\n")
