from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROWS = "tables: {{user: {{remove: {{requires: WRITE (shop), revokes: [grants, owners]{0}}}}}, shelf: {{drop: READ (shelf)}}}}\n"


def test_a_row_that_revokes(only: Callable[..., Any]) -> None:
    found = only(ROWS.format(""), "P347")
    assert found.message == "`remove` revokes `grants`, and certifications do not count it as destructive"
    assert found.help == "add `destructive: true`"
    assert found.under == "remove"


@pytest.mark.parametrize(("declared", "codes_found"), [("destructive: true", 0), ("sensitive: true", 1)])
def test_the_declaration_ends_it(codes: Callable[[str], list[str]], declared: str, codes_found: int) -> None:
    assert codes(ROWS.format(f", {declared}")).count("P347") == codes_found
