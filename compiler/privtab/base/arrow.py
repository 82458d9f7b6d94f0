"""Convert values to Arrow arrays and back without pandas, which pyarrow's own conversions load: that takes longer than reading a state.

Needs numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes: TypeAlias = npt.NDArray[np.int64]
"""Numbers of users, entities and so on; -1: none."""
Truth: TypeAlias = npt.NDArray[np.bool_]


def text_array(values: Sequence[str]) -> pa.Array:
    """An array of strings, as `pa.array` makes it; the texts must not be None and must be encodable in UTF-8.

    >>> text_array(["a", "", "ä"]).to_pylist()
    ['a', '', 'ä']
    """
    joined = "".join(values)
    content = joined.encode()
    lengths = map(len, values) if len(content) == len(joined) else (len(value.encode()) for value in values)
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(values)), out=ends[1:])
    if len(content) < 1 << 31:
        buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)]
        return pa.StringArray.from_buffers(len(values), *buffers[1:])
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(content))


def integer_array(values: Codes) -> pa.Array:
    """An array of numbers, which shares the memory of `values`.

    >>> integer_array(np.array([3, 4])).to_pylist()
    [3, 4]
    """
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def truth_array(values: Truth) -> pa.Array:
    """An array of booleans."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def array_numbers(array: pa.Array) -> Codes:
    """The integers in an array; -1 stands for nulls.

    >>> array_numbers(pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(np.array([3, 4], np.int32))])).tolist()
    [3, 4]
    """
    width = array.type.bit_width // 8
    kind = np.dtype(f"{'u' if pa.types.is_unsigned_integer(array.type) else 'i'}{width}")
    if not len(array):
        return np.zeros(0, np.int64)
    found = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * width).astype(np.int64)
    if array.null_count:
        found[~array_truth(array.is_valid())] = -1  # pyarrow's `fill_null` loads pandas
    return found


def array_truth(array: pa.Array) -> Truth:
    """The booleans in an array without nulls.

    >>> array_truth(truth_array(np.array([True, False]))).tolist()
    [True, False]
    """
    if not len(array):
        return np.zeros(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def text_bytes(texts: pa.Array) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.uint8]]:
    """The places where texts begin in the bytes of all texts, with the end of the last; and the bytes.

    >>> offsets, signs = text_bytes(text_array(["a", "bc"]))
    >>> offsets.tolist(), bytes(signs)
    ([0, 1, 3], b'abc')
    """
    _, offsets, data = texts.buffers()
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    if not len(texts) or data is None:
        return np.zeros(len(texts) + 1, width), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1]
    return ends - ends[0], np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def position(array: pa.Array, text: str) -> int:
    """The first position of a text in an array of strings, or -1."""
    found: int = pc.index(array, text_array([text])[0].cast(array.type)).as_py()
    return found


class Lists:
    """Numbers by number: for each of `count` owners a run of values."""

    def __init__(self, owners: Codes, values: Codes, count: int) -> None:
        """Pairs of an owner and a value, in any order."""
        order = np.argsort(owners, kind="stable")
        self.values = values[order]
        self.first = np.zeros(count + 2, np.int64)
        np.cumsum(np.bincount(owners, minlength=count), out=self.first[1:-1])
        # One more, empty run for the owner -1.
        self.first[-1] = self.first[-2]

    def counts(self, owners: Codes) -> Codes:
        """The number of values of each owner; the owner -1 has none."""
        counted: Codes = np.where(owners < 0, 0, self.first[owners + 1] - self.first[owners])
        return counted

    def spread(self, owners: Codes) -> tuple[Codes, Codes]:
        """All values of some owners: the position of the owner in `owners`, and the position of the value in `values`."""
        counts = self.counts(owners)
        rows = np.repeat(np.arange(len(owners)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(rows)) - np.repeat(ends - counts, counts)
        return rows, self.first[owners][rows] + within

    def values_of(self, owners: Codes) -> tuple[Codes, Codes]:
        """All values of some owners: the position of the owner in `owners`, and the value."""
        rows, positions = self.spread(owners)
        return rows, self.values[positions]
