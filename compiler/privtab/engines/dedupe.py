"""Requests that repeat: each is decided once, and every row that asks the same gets its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from privtab.engines.lookups import Codes

WORTH = 0.7
"""The share of distinct rows up to which deciding each once is worth finding them."""
SAMPLE = 1 << 13
"""Rows that are looked at first."""
ALONE = 0.9
"""The share of distinct ones among them from which on the others are not looked at."""
_LARGEST = 1 << 62


def distinct(columns: Sequence[pa.Array]) -> tuple[Codes, Codes] | None:
    """The first row of each distinct request, and for each row which of these it is; None where too few repeat.

    `columns`: equally long; a null equals a null.
    """
    rows = len(columns[0]) if columns else 0
    if not rows:
        return None
    if rows > 4 * SAMPLE:
        first_rows = distinct([column.slice(0, SAMPLE) for column in columns])
        if first_rows is None or len(first_rows[0]) > ALONE * SAMPLE:
            return None
    code: Codes = np.zeros(rows, np.int64)
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
    if count > (WORTH if rows > SAMPLE else 1) * rows:
        return None
    first = np.empty(count, np.int64)
    # Of writes to one place the last stands: backwards that is the first row.
    first[inverse[::-1]] = np.arange(rows - 1, -1, -1)
    return first, inverse


def _dense(code: Codes) -> tuple[Codes, int]:
    found = pa.array(code).dictionary_encode()
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(found.dictionary)
