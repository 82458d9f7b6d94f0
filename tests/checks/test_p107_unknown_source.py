from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_source(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {manual: {document: m.txt}}
        tables: {shop: {open: {requires: READ (shop), source: 'manaul:3'}}}
        """,
        "P107",
    )
    assert found.message == "unknown source `manaul`"
    assert found.help == "did you mean `manual`?"
    assert found.under == "'manaul:3'"


def test_a_bare_line_where_there_are_two_documents(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {one: {document: 1.txt}, two: {document: 2.txt}}
        tables: {shop: {open: {requires: READ (shop), source: 3}}}
        """,
        "P107",
    )
    assert found.message == "the row does not say which source its line is in"
    assert found.help == "write `name:line`; the sources are `one` and `two`"
    assert found.under == "3"


def test_a_line_where_there_are_none(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), source: 3}}}\n", "P107")
    assert found.message == "the row does not say which source its line is in"
    assert found.help == "add `sources: {NAME: {document: FILE}}`"
    assert found.under == "3"
