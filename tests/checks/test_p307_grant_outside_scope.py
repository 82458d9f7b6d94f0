from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_above_the_scope(only: Callable[..., Any]) -> None:
    found = only(
        """\
        roles: {keeper: {scope: shelf, grants: {shop: [READ], item: [READ]}}}
        tables: {shop: {open: READ (shop), close: WRITE (shop)}}
        """,
        "P307",
    )
    assert found.message == "a `shop` is never within the scope of `keeper`, a `shelf`"
    assert found.help == "the scope holds `shelf` and `item`"
    assert found.under == "shop"


def test_no_finding_within_the_scope(codes: Callable[[str], list[str]]) -> None:
    assert "P307" not in codes("""\
        roles: {keeper: {scope: shelf, grants: {shelf: [READ], item: [WRITE]}}}
        tables: {shop: {open: READ (shop), close: WRITE (shop)}}
        """)


def test_outside_all_of_several_scopes(only: Callable[..., Any]) -> None:
    found = only(
        """\
        roles: {keeper: {scope: [item, shelf], grants: {shop: [READ], item: [READ]}}}
        tables: {shop: {open: READ (shop), close: WRITE (shop)}}
        """,
        "P307",
    )
    assert found.message == "a `shop` is never within the scope of `keeper`, a `item` or `shelf`"


def test_a_scope_in_which_nothing_is_granted(only: Callable[..., Any]) -> None:
    found = only(
        """\
        roles: {keeper: {scope: [shelf, item], grants: {shelf: [READ]}}}
        tables: {shelf: {open: READ (shelf), close: WRITE (shelf)}}
        """,
        "P307",
    )
    assert found.message == "the role `keeper` grants nothing within a `item`"
    assert found.help == "leave out the scope, or grant something on `item`"
    assert found.under == "item"
