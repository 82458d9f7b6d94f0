from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_the_call_takes_it_already(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {list: {requires: READ + WRITE (shop), each: READ (shop)}}}\n", "P327")
    assert found.message == "every item of `list` passes: the call already requires all that `each` requires"
    assert found.help == "write `each: anyone`, or require something on the item"
    assert found.under == "READ"


def test_by_inheritance(only: Callable[..., Any]) -> None:
    text = "tables: {shelf: {list: {requires: READ (shop), each: READ (shelf)}}}\n"
    assert only(f"semantics: {{inheritance: down}}\n{text}", "P327").under == "READ"


@pytest.mark.parametrize("semantics", ["{inheritance: none}", "{inheritance: down, deny: overrides}"])
def test_no_finding(codes: Callable[[str], list[str]], semantics: str) -> None:
    text = "tables: {shelf: {list: {requires: READ (shop), each: READ (shelf)}, walk: {requires: READ (shop), each: anyone}}}"
    assert "P327" not in codes(f"semantics: {semantics}\n{text}\n")
