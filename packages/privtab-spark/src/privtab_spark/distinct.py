"""Columns of requests of which many repeat: each distinct request once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_DISTINCT_SHARE = 0.7
"""The largest share of distinct rows at which finding them pays off."""
SAMPLE = 1 << 12
"""Rows in the sample that is examined first."""
MAX_DISTINCT_SHARE_OF_SAMPLE = 0.95
"""The share of distinct rows in the sample above which the others are not examined."""
_LARGEST = 1 << 62


def distinct_requests(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """The first row of each distinct request, and the number of each row's request; None if too few repeat.

    `columns`: of equal length; a null equals a null.
    """
    rows = len(columns[0]) if columns else 0
    if not rows:
        return None
    if rows > 4 * SAMPLE:
        first_rows = distinct_requests([column.slice(0, SAMPLE) for column in columns])
        if first_rows is None or len(first_rows[0]) > MAX_DISTINCT_SHARE_OF_SAMPLE * SAMPLE:
            return None
    code: npt.NDArray[np.int64] = np.zeros(rows, np.int64)
    kinds = 1
    for column in columns:
        found = column.dictionary_encode(null_encoding="encode")
        count = max(1, len(found.dictionary))
        if kinds * count > _LARGEST:
            code, kinds = _dense(code)
            if kinds * count > _LARGEST:
                return None
        code = code * count + found.indices.to_numpy(zero_copy_only=False)
        kinds *= count
    inverse, count = _dense(code)
    if count > (MAX_DISTINCT_SHARE if rows > SAMPLE else 1) * rows:
        return None
    first = np.empty(count, np.int64)
    # The last write to a position wins: in reverse order, that is the first row.
    first[inverse[::-1]] = np.arange(rows - 1, -1, -1)
    return first, inverse


def _dense(code: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    found = pa.array(code).dictionary_encode()
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(found.dictionary)
