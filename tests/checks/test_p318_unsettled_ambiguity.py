from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_no_reason(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {look: {requires: READ (shelf), ambiguous: {readings: {other: WRITE (shelf)}}}}}\n", "P318"
    )
    assert found.message == "the row `look` does not say why its reading was chosen"
    assert found.help == "add `why: …`"
    assert found.under == "look"


def test_ambiguous_without_readings(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {look: {requires: READ (shelf), ambiguous: {cell: READ?, why: Icons., readings: {}}}}}\n",
        "P318",
    )
    assert found.message == "the row `look` is ambiguous, but records no other reading"
    assert found.help == "write the other readings under `readings`, or drop `ambiguous`"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    assert "P318" not in codes(
        "tables: {shelf: {look: {requires: READ (shelf), ambiguous: {why: Icons., readings: {other: WRITE (shelf)}}}}}\n"
    )
