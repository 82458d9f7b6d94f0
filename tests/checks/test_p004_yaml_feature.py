from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_anchor(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: &reader READ/WRITE (shop)}}\n", "P004")
    assert found.message == "anchor `&reader` is not part of the YAML that privtab reads"
    assert found.help == "write the value where it belongs; to share a condition use `can OP (x)`"
    assert found.under == "&reader"


def test_a_tag(only: Callable[..., Any]) -> None:
    found = only("title: !!str 5\n", "P004")
    assert found.message == "tag `!!str` is not part of the YAML that privtab reads"
    assert found.help == "drop it; put text in quotes where it looks like a number"
    assert found.under == "!!str"


def test_a_merge_key(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {<<: {close: READ (shop)}, open: READ/WRITE (shop)}}\n", "P004")
    assert found.message == "merge key `<<` is not part of the YAML that privtab reads"
    assert found.help == "write the rows out, or name several operations in one key: `start, stop:`"
    assert found.under == "<<"


def test_a_key_that_is_a_list(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {[open, close]: READ (shop), look: READ/WRITE (shop)}}\n", "P004")
    assert found.message == "a key that is not a word is not part of the YAML that privtab reads"
    assert found.help == "keys are words; name several operations as `start, stop:`"
    assert found.under == "[open, close]"


def test_nesting_without_end(only: Callable[..., Any]) -> None:
    found = only(f"title: {'[' * 3000}{']' * 3000}\n", "P004")
    assert found.message == "nesting as deep as this is not part of the YAML that privtab reads"
    assert found.help == "write it flatter"
