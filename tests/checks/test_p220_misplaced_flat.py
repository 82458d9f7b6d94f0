from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_root_that_contains_something(only: Callable[..., Any]) -> None:
    found = only("types: {shop: {flat: true}}\n", "P220")
    assert found.message == "ids of `shop` cannot be flat: paths of `shelf` begin with them"
    assert found.under == "true"


def test_a_single_entity_has_the_path_of_its_parent(only: Callable[..., Any]) -> None:
    found = only("types: {shelf: {single: true, flat: true}}\n", "P220")
    assert found.message.startswith("ids of `shelf` cannot be flat: there is one per parent")


def test_a_type_that_nests_below_has_flat_ids_too(only: Callable[..., Any], codes: Callable[[str], list[str]]) -> None:
    found = only("types: {shelf: {flat: true}, item: {nested: true}}\n", "P220")
    assert found.message == "`item` nests below `shelf`, whose ids are flat"
    assert "P220" not in codes("types: {shelf: {flat: true}, item: {nested: true, flat: true}}\n")
    assert "P220" not in codes("types: {shelf: {flat: false}}\n")
