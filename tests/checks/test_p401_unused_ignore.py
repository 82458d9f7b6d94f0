from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_comment_beside_a_row_that_is_fine(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop)}}  # privtab: ignore P310 both are in the document\n", "P401")
    assert found.message == "nothing here has the finding `P310`"
    assert found.under == "P310"


def test_no_finding_where_it_hides_something_or_where_errors_stop_the_rest(
    codes: Callable[[str], list[str]],
) -> None:
    row = "tables: {shop: {open: READ (shop) or READ (shop) and WRITE (%s)}}  # privtab: ignore P310 why\n"
    assert "P310" not in codes(row % "shop")
    assert "P401" not in codes(row % "shop")
    assert codes(row % "shp") == ["P102"]
