from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_another_condition(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: READ (shop)
            open: WRITE (shop)
        """,
        "P202",
    )
    assert found.message == "`shop` has two rows `open` that contradict each other"
    assert found.help == "line 3 says something else: keep one, or record the other under `ambiguous`"
    assert found.under == "open"


def test_another_effect(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: {requires: READ (shop), grants: READ (shop)}
            open: {requires: READ (shop), grants: WRITE (shop)}
        """,
        "P202",
    )
    assert found.message == "`shop` has two rows `open` that contradict each other"
    assert found.help == "line 3 says something else: keep one, or record the other under `ambiguous`"
    assert found.under == "open"


def test_rows_of_any_for_a_common_type(only: Callable[..., Any]) -> None:
    found = only(
        """\
        any:
          open: {for: [shop, shelf], requires: READ (entity)}
          open: {for: [shelf, item], requires: WRITE (entity)}
        """,
        "P202",
    )
    assert found.message == "`shelf` has two rows `open` that contradict each other"
    assert found.help == "line 2 says something else: keep one, or record the other under `ambiguous`"
    assert found.under == "open"


def test_rows_of_any_at_the_top_and_under_tables(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          any: {open: {for: [shop, shelf], requires: READ (entity)}}
        any:
          open: {for: [shelf, item], requires: WRITE (entity)}
        """,
        "P202",
    )
    assert found.message == "`shelf` has two rows `open` that contradict each other"
    assert found.help == "line 2 says something else: keep one, or record the other under `ambiguous`"
    assert found.under == "open"
