from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_type_that_no_row_refers_to(only: Callable[..., Any]) -> None:
    found = only("privileges: {READ: {on: [shop, shelf]}}\ntables: {shelf: {look: READ (shelf)}}\n", "P337")
    assert found.message == "no row requires `READ` on a `shop`"
    assert found.help == "granting it there changes nothing: drop the type, or add rows that require it"
    assert found.under == "shop"


@pytest.mark.parametrize(
    "text",
    [
        "semantics: {inheritance: down}\nprivileges: {READ: {on: [shop, shelf]}}\ntables: {shelf: {look: READ (shelf)}}",
        "privileges: [READ]\ntables: {shelf: {look: READ (shelf)}}",
        "privileges: {READ: {on: [shop, shelf]}}\ntables: {shelf: {look: anyone}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P337" not in codes(f"{text}\n")
