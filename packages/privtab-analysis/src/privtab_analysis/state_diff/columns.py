"""The rows that only one of two large tables has, by their columns. Needs numpy and pyarrow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from privtab.state import CodedColumn


def same(first: CodedColumn, second: CodedColumn) -> bool:
    """Return whether two columns have the same texts under the same numbers, as columns have that were read from equal rows."""
    return np.array_equal(first.codes, second.codes) and first.array.equals(second.array)


def only_in_one(columns: Iterable[tuple[CodedColumn, CodedColumn]]) -> tuple[list[int], list[int]]:
    """The numbers of the rows that only one of two tables has, each row once. `columns`: the columns of both tables, in pairs."""
    joined = []
    first_length = 0
    for first, second in columns:
        first_length = len(first)
        joined.append(first.followed_by(second))
    found = CodedColumn.numbered_rows(joined)
    first_groups, second_groups = found[:first_length], found[first_length:]
    # States that follow one another differ in few places: what begins and ends both tables is in both.
    shorter = min(len(first_groups), len(second_groups))
    begin = _alike(first_groups[:shorter], second_groups[:shorter])
    end = _alike(first_groups[::-1][: shorter - begin], second_groups[::-1][: shorter - begin])
    return _missing(first_groups, second_groups, begin, end), _missing(second_groups, first_groups, begin, end)


def _alike(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> int:
    """The number of equal rows at the beginning of two tables of one length."""
    different = first != second
    return int(different.argmax()) if different.any() else len(first)


def _missing(rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64], begin: int, end: int) -> list[int]:
    """The first of each of the rows that is not among the others, but for so many at the beginning and at the end."""
    distinct, first = np.unique(rows[begin : len(rows) - end], return_index=True)
    # Most are found in the first part, so that few are left to look for in what both tables begin and end with.
    for part in (others[begin : len(others) - end], others[:begin], others[len(others) - end :]):
        if len(distinct) and len(part):
            ordered = np.sort(part)
            new = ordered[np.minimum(np.searchsorted(ordered, distinct), len(part) - 1)] != distinct
            distinct, first = distinct[new], first[new]
    numbers: list[int] = np.sort(first + begin).tolist()
    return numbers
