from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DECLARED = """\
attributes:
  user: {department: {text: true, from: request}}
  entity: {class: {enum: [public, internal], on: [item], from: request}}
"""


@pytest.mark.parametrize(
    ("condition", "message", "help_"),
    [
        ("user.departement = sales", "unknown attribute `user.departement`", "did you mean `department`?"),
        ("request.mfa", "unknown attribute `request.mfa`", "declare it: `attributes: {user: {NAME: TYPE}}`"),
        ("shelf.class = public", "a `shelf` has no attribute `class`", "`class` is declared on `item`"),
    ],
)
def test_attributes_that_are_not_there(only: Callable[..., Any], condition: str, message: str, help_: str) -> None:
    found = only(f"{DECLARED}tables: {{shelf: {{look: READ (shelf) and {condition}}}}}\n", "P109")
    assert (found.message, found.help) == (message, help_)
    assert found.under == condition.split(maxsplit=1)[0]


def test_attributes_of_what_contains_the_object_are_not_given(only: Callable[..., Any]) -> None:
    text = DECLARED.replace("[item]", "[item, shelf]") + "tables: {item: {look: shelf.class = public}}\n"
    assert only(text, "P109").message == "requests do not give `class` of the `shelf` that contains their object"


def test_a_declaration_that_cannot_be_read_is_the_only_finding(codes: Callable[[str], list[str]]) -> None:
    text = "attributes: {user: {rank: number}}\ntables: {item: {look: user.rank = 3}}\n"
    assert codes(text) == ["P008"]


@pytest.mark.parametrize("condition", ["item.class = public", "entity.class in {public}", "user.department = a.b or x"])
def test_no_finding(codes: Callable[[str], list[str]], condition: str) -> None:
    condition = condition.replace("a.b or x", '"a.b" or READ (item)')
    assert "P109" not in codes(f"{DECLARED}tables: {{item: {{look: '{condition}'}}}}\n")
