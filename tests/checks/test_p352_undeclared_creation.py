from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROWS = "tables: {{shelf: {{{0}: {{{1}, grants: READ}}, look: READ (shelf)}}}}\n"


def test_a_row_that_may_be_a_claim(only: Callable[..., Any]) -> None:
    found = only(ROWS.format("claim", "requires: WRITE (shop)"), "P352")
    assert found.message == "`claim` gives something on the `shelf`, and does not say whether it creates it"
    assert found.help == "add `creates: true`, or `creates: false` if the entity exists before"
    assert found.under == "claim"


@pytest.mark.parametrize(
    ("operation", "row"),
    [
        ("create", "requires: WRITE (shop)"),
        ("register_old", "requires: WRITE (shop)"),
        ("claim", "requires: WRITE (shop), creates: true"),
        ("claim", "requires: WRITE (shop), creates: false"),
        ("claim", "requires: WRITE (shelf)"),
        ("claim", "each: WRITE (shelf)"),
    ],
)
def test_a_row_that_says_it(codes: Callable[[str], list[str]], operation: str, row: str) -> None:
    assert "P352" not in codes(ROWS.format(operation, row))
