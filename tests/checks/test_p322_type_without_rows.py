from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_forgotten_type(only: Callable[..., Any]) -> None:
    found = only("entities: {shop: {shelf:, cellar:}}\ntables: {shelf: {look: READ (shelf)}}\n", "P322")
    assert found.message == "no row uses the type `cellar`"
    assert found.help == "no request can be made about it: add rows for it, or drop it"
    assert found.under == "cellar"


@pytest.mark.parametrize(
    "rest",
    [
        "tables: {shelf: {look: READ (shelf)}, cellar: {look: READ (cellar)}}",
        "tables: {shelf: {look: READ (shelf), move: {with: {to: cellar}, requires: READ (to)}}}",
        "types: {cellar: {single: true}}\ntables: {shelf: {look: READ (cellar)}}",
        "core: {look: READ (entity)}",
        "tables: {shelf: {look: READ (shelf)}}\nvariants: {old: {tables: {cellar: {look: READ (cellar)}}}}",
        "tables: {shop: {dig: {requires: READ (shop), grants: READ (cellar)}}, shelf: {look: READ (shelf)}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], rest: str) -> None:
    assert "P322" not in codes(f"entities: {{shop: {{shelf:, cellar:, user:}}}}\n{rest}\n")
