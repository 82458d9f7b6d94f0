from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("cell", ["READ (shelf) or anyone", "can browse (shop)", "READ (shelf) or can browse (shop)"])
def test_open_to_anybody(only: Callable[..., Any], cell: str) -> None:
    found = only(f"tables: {{shop: {{browse: anyone}}, shelf: {{look: {cell}}}}}\n", "P331")
    assert found.message == "`requires` of `look` holds for every caller"
    assert found.help == "write `requires: anyone` if that is intended; else check its alternatives"
    assert found.under == "look"


def test_open_to_whoever_passes_the_gate(only: Callable[..., Any]) -> None:
    found = only("semantics: {gate: member (shop)}\ntables: {shelf: {look: READ (shelf) or member (shop)}}\n", "P331")
    assert found.message == "`requires` of `look` holds for every caller that passes the gate"


@pytest.mark.parametrize("cell", ["anyone", "member (shop)", "READ (shelf)", "READ (shelf) when strict"])
def test_no_finding(codes: Callable[[str], list[str]], cell: str) -> None:
    assert "P331" not in codes(f"semantics: {{gate: member (shop)}}\ntables: {{shelf: {{look: {cell}}}}}\n")
