from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FILTERS = """\
dialect: trino
types: {{item: {{row_filters: {{first: {{requires: {0}, sql: a}}, second: {{requires: {1}, sql: b}}, third: {{requires: {2}, sql: c}}}}}}}}
tables: {{item: {{read: READ (item)}}}}
"""


@pytest.mark.parametrize(
    ("conditions", "name"),
    [
        (("READ (item)", "READ (item) and WRITE (item)", "WRITE (item)"), "second"),
        (("READ (item)", "WRITE (item)", "READ (item) and WRITE (item)"), "third"),
        (("READ (item)", "WRITE (item)", "READ/WRITE (item)"), "third"),
        (("can read (item)", "READ (item)", "WRITE (item)"), "second"),
    ],
)
def test_an_earlier_one_holds_wherever_it_does(
    only: Callable[..., Any], conditions: tuple[str, ...], name: str
) -> None:
    found = only(FILTERS.format(*conditions), "P348")
    assert found.message == f"`{name}` never applies: an earlier one holds wherever it does"
    assert found.under == name


def test_filters_that_apply(codes: Callable[[str], list[str]]) -> None:
    assert "P348" not in codes(FILTERS.format("READ (item) and WRITE (item)", "READ (item)", "anyone"))
    masks = FILTERS.format("READ (item)", "WRITE (item)", "anyone").replace("third", "}, column_masks: {third")
    assert "P348" not in codes(masks), "masks do not stand behind filters"
