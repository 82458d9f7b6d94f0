from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_row_for_many_types(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {manual: {document: m.txt}}
        core: {open: READ/WRITE (entity)}
        """,
        "P303",
    )
    assert found.message == "the row `open` has no `source`"
    assert found.help == "add the line of the document: `source: 15`"
    assert found.under == "open"


def test_two_documents(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {one: {document: 1.txt}, two: {document: 2.txt}}
        tables: {shop: {open: READ/WRITE (shop)}}
        """,
        "P303",
    )
    assert found.message == "the row `open` has no `source`"
    assert found.help == "add the line of the document: `source: one:15`"
    assert found.under == "open"


def test_no_finding_no_documents(codes: Callable[[str], list[str]]) -> None:
    assert "P303" not in codes("tables: {shop: {open: READ (shop), close: WRITE (shop)}}\n")
