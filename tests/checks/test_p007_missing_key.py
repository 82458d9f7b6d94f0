from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_source_without_a_document(only: Callable[..., Any]) -> None:
    found = only("sources: {manual: {title: Manual}}\n", "P007")
    assert found.message == "missing key `document` in a source"
    assert found.help == "add `document: FILE`"
    assert found.under == "{"


def test_an_ambiguous_row_without_readings(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), ambiguous: {why: it is}}}}\n", "P007")
    assert found.message == "missing key `readings` in `ambiguous`"
    assert found.help == "add `readings: {NAME: CONDITION}`"
    assert found.under == "{"
