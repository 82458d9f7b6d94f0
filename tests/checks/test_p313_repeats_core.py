from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_an_equal_condition_written_differently(only: Callable[..., Any]) -> None:
    found = only(
        """\
        core: {open: READ (entity) and WRITE (entity)}
        tables: {shelf: {open: WRITE + READ (shelf)}}
        """,
        "P313",
    )
    assert found.message == "the row `open` repeats the core row"
    assert found.help == "drop it"
    assert found.under == "open"


def test_the_same_under_inheritance(only: Callable[..., Any]) -> None:
    only(
        """\
        semantics: {inheritance: down}
        core: {open: READ (entity)}
        tables: {shelf: {open: "READ (shop, shelf)"}}
        """,
        "P313",
    )


def test_rows_that_record_a_cell_are_one_finding(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {wiki: {document: rules.txt}}
        core: {open: {requires: READ (entity), source: 1}, close: {requires: WRITE (entity), source: 2}}
        tables: {shelf: {open: {requires: READ (shelf), source: 7}, close: {requires: WRITE (shelf), source: 8}}}
        """,
        "P313",
    )
    assert found.message == "2 rows that record a cell repeat core rows"
    assert found.help == "keep them for what they record, or drop them: `shelf/open` and `shelf/close`"


@pytest.mark.parametrize(
    "row",
    [
        "WRITE (shelf)",
        "READ (shop)",
        "{requires: READ (shelf), grants: READ (shelf)}",
        "{requires: READ (shelf), each: READ (shelf)}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], row: str) -> None:
    assert "P313" not in codes(f"core: {{open: READ (entity)}}\ntables: {{shelf: {{open: {row}}}}}\n")
