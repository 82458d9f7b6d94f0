from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("deprecated", "help_"), [("use look", "use look"), ("true", "write what is meant without it")]
)
def test_a_row_that_will_go(only: Callable[..., Any], deprecated: str, help_: str) -> None:
    found = only(
        f"tables: {{shop: {{enter: {{requires: READ (shop), deprecated: {deprecated}}}}}, shelf: {{open: can enter (shop)}}}}\n",
        "P336",
    )
    assert found.message == "the row `shop/enter` is deprecated"
    assert found.help == help_
    assert found.under == "enter"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    old = "{requires: READ (shop), deprecated: use look}"
    rows = f"shop: {{enter: {old}}}, shelf: {{open: {{requires: can enter (shop), deprecated: use look}}}}"
    assert "P336" not in codes(f"tables: {{{rows}}}\n")
