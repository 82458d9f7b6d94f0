from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_targets_below_the_resource(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {fill: READ (item)}}\n", "P104")
    assert found.message == "`item` is not on the path of `shelf`"
    assert found.help == "targets here are `shop` and `shelf`; another object is declared by `with`"
    assert found.under == "item"


def test_the_parent_of_a_root(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (parent)}}\n", "P104")
    assert found.message == "`parent` is not on the path of `shop`"
    assert found.help == "`shop` is at the top: it has no parent"
    assert found.under == "parent"


def test_a_row_for_many_types_is_one_finding(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: {shelf: {item: }}}
        any: {look: READ (shelf)}
        """,
        "P104",
    )
    assert found.message == "`shelf` is not on the path of `shop`"
    assert found.help == "targets here are `shop`; another object is declared by `with`"
    assert found.under == "shelf"


def test_a_gate_that_some_types_cannot_reach(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: {shelf: }, depot: , van: }
        semantics: {gate: member (shop)}
        tables:
          shop: {open: READ (shop)}
          depot: {open: READ (depot)}
          van: {open: READ (van)}
        """,
        "P104",
    )
    assert found.message == "`shop` is not on the path of `depot`"
    assert found.help == "the same applies to `van`; targets here are `depot`; another object is declared by `with`"
    assert found.under == "shop"
