from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_two_types_on_one_path(only: Callable[..., Any]) -> None:
    found = only("types: {shelf: {nested: true}, item: {nested: 4}}\n", "P217")
    assert found.message == "`item` and `shelf` both nest, and `item` lies below `shelf`"
    assert found.under == "4"


def test_two_types_on_different_paths(codes: Callable[[str], list[str]]) -> None:
    text = "entities: {shop: {shelf:, box:, user:}}\ntypes: {shelf: {nested: true}, box: {nested: true}}\n"
    assert "P217" not in codes(text)
