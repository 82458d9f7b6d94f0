from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_duplicate_written_differently(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , WRITE: , VIEW: {alias_of: READ}}
        tables:
          shop:
            open: READ/WRITE (shop)
            open: WRITE (entity) or VIEW (shop)
        """,
        "P201",
    )
    assert found.message == "`shop` has the row `open` twice"
    assert found.help == "line 4 says the same: drop one"
    assert found.under == "open"


def test_in_a_list_of_operations(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open, close: READ/WRITE (shop)
            close: READ/WRITE (shop)
        """,
        "P201",
    )
    assert found.message == "`shop` has the row `close` twice"
    assert found.help == "line 3 says the same: drop one"
    assert found.under == "close"


def test_in_core(only: Callable[..., Any]) -> None:
    found = only(
        """\
        core:
          open: READ/WRITE (entity)
          open: READ/WRITE (entity)
        """,
        "P201",
    )
    assert found.message == "`shelf` has the row `open` twice"
    assert found.help == "line 2 says the same: drop one"
    assert found.under == "open"


def test_in_any_at_the_top_and_under_tables(only: Callable[..., Any]) -> None:
    found = only(
        """\
        any:
          open: READ/WRITE (entity)
        tables:
          any: {open: READ/WRITE (entity)}
        """,
        "P201",
    )
    assert found.message == "`shop` has the row `open` twice"
    assert found.help == "line 2 says the same: drop one"
    assert found.under == "open"


def test_in_any_of_a_variant(only: Callable[..., Any]) -> None:
    found = only(
        """\
        variants:
          other:
            any: {open: READ/WRITE (entity)}
            tables: {any: {open: READ/WRITE (entity)}}
        """,
        "P201",
    )
    assert found.message == "`shop` has the row `open` twice"
    assert found.help == "line 3 says the same: drop one"
