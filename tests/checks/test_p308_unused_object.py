from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_object_that_no_condition_uses(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {move: {with: {target: shelf}, requires: READ/WRITE (item)}}}\n", "P308")
    assert found.message == "the row `move` never uses its object `target`"
    assert found.help == "every request must still name it: require something of it, or drop it"
    assert found.under == "target"


def test_no_finding_in_an_effect_alone(codes: Callable[[str], list[str]]) -> None:
    assert "P308" not in codes("""\
        tables: {item: {move: {with: {target: shelf}, requires: READ/WRITE (item), revokes: READ (target)}}}
        """)
