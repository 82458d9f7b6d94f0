from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_no_gate_to_lay_down(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: {requires: READ (shelf), gate: none}}}\n", "P338")
    assert found.message == "the row `look` has `gate: none`, but the file has no gate"
    assert found.help == "drop `gate: none`, or define the gate in `semantics`"
    assert found.under == "look"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    text = "semantics: {gate: member (shop)}\ntables: {shelf: {look: {requires: READ (shelf), gate: none}}}\n"
    assert "P338" not in codes(text)
