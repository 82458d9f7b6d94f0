from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_core_row_of_parents_where_all_are_roots(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: }
        privileges: [READ]
        core: {open: READ (parent)}
        """,
        "P309",
    )
    assert found.message == "the core row `open` applies to no entity type"
    assert found.help == "every entity type has a row of its own: drop it, or drop a row that says the same"
    assert found.under == "open"


def test_no_finding_one_type_left(codes: Callable[[str], list[str]]) -> None:
    assert "P309" not in codes("""\
        core: {open: READ/WRITE (entity)}
        tables: {shop: {open: READ (shop)}}
        """)
