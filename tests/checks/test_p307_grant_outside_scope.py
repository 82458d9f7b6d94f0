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
