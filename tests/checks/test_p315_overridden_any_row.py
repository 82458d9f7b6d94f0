from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(("row", "meaning"), [("WRITE (shelf)", "something else"), ("READ (entity)", "the same")])
def test_a_type_with_a_row_of_its_own(only: Callable[..., Any], row: str, meaning: str) -> None:
    found = only(
        f"any: {{open: {{requires: READ (entity), for: [shop, shelf]}}}}\ntables: {{shelf: {{open: {row}}}}}\n", "P315"
    )
    assert found.message == f"the row `open` of `shelf` says {meaning}, so this one never applies to it"
    assert found.help == "keep one: drop the row of the table, or leave `shelf` out of `for`"
    assert found.under == "shelf"


def test_no_finding_where_no_type_is_named(codes: Callable[[str], list[str]]) -> None:
    assert "P315" not in codes("any: {open: READ (entity)}\ntables: {shelf: {open: WRITE (shelf)}}\n")
