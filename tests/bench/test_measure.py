"""Rows of an earlier run stay on the page of benchmarks where a run measures some groups."""

from __future__ import annotations

import pytest
from measure import Report, Table, WrongAnswerError, markdown, with_earlier_rows

COLUMNS = ("what", "this tree", "beside it")


def report(*rows: tuple[str, ...], columns: tuple[str, ...] = COLUMNS) -> Report:
    return Report(part="waits", tables=(Table(title="Waits", columns=columns, rows=rows),), adds=True)


def test_rows_of_other_groups_stay_as_they_are() -> None:
    earlier = report(("`a`, s", "1 (1..2), of 3", ""), ("b, s", "5", "OPA: 4"), ("c, s", "7", ""))
    (table,) = with_earlier_rows(report(("b, s", "6", ""), ("d, s", "8", "")), markdown(earlier)).tables
    assert table.rows == (("`a`, s", "1 (1..2), of 3", ""), ("b, s", "6", ""), ("c, s", "7", ""), ("d, s", "8", ""))


def test_rows_of_a_run_without_another_tree_are_not_mixed_in() -> None:
    earlier = markdown(report(("a", "1", "2", ""), columns=("what", "this tree", "other tree", "beside it")))
    with pytest.raises(WrongAnswerError, match="other tree"):
        with_earlier_rows(report(("a", "1", "")), earlier)
