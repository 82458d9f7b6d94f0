from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_ancestor(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {move: {with: {shelf: shelf}, requires: WRITE (shelf)}}}\n", "P213")
    assert found.message == "the object `shelf` hides the `shelf` of `item`"
    assert found.help == "give it another name: `shelf_2`, `other_shelf`"
    assert found.under == "shelf"


def test_an_object_named_parent(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {move: {with: {parent: shelf}, requires: WRITE (parent)}}}\n", "P213")
    assert found.message == "the object `parent` hides the `parent` of `item`"
    assert found.help == "give it another name: `parent_2`, `other_parent`"
    assert found.under == "parent"
