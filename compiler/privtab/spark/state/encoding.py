"""Encode the strings of Arrow columns as numbers, and sort and count rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes

Texts: TypeAlias = Any
"""A pyarrow array of `large_string`."""


def large(values: Sequence[str] | Any) -> Texts:
    """Strings as an Arrow array with 64-bit offsets."""
    if isinstance(values, pa.ChunkedArray):
        return values.cast(pa.large_string()).combine_chunks()
    return values.cast(pa.large_string()) if isinstance(values, pa.Array) else pa.array(values, pa.large_string())


def ranks(values: Texts) -> Codes:
    """The rank of each string in sorted order; strings must be distinct."""
    order = np.asarray(pc.sort_indices(values)).astype(np.int64)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def in_order(*columns: Codes) -> Codes | slice:
    """An index that sorts rows of numbers; a full slice if they are sorted already."""
    wrong = np.zeros(max(len(columns[0]) - 1, 0), bool)
    alike = ~wrong
    for column in columns:
        wrong |= alike & (column[:-1] > column[1:])
        alike &= column[:-1] == column[1:]
    return np.lexsort(columns[::-1]) if wrong.any() else slice(None)


def unique(columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[list[Codes], Codes]:
    """Distinct rows of columns of numbers, sorted, and the count of each; `sizes`: upper bound of the numbers in each column."""
    width = 1
    for size in sizes:
        width *= max(size, 1)
    if width < 2**62:
        packed = np.zeros(len(columns[0]), np.int64)
        for column, size in zip(columns, sizes, strict=True):
            packed = packed * max(size, 1) + column
        values, counts = np.unique(packed, return_counts=True)
        out: list[Codes] = []
        for size in reversed(sizes):
            values, column = np.divmod(values, max(size, 1))
            out.append(column)
        return out[::-1], counts
    rows, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    return [rows[:, position] for position in range(len(columns))], counts


def ranked(column: Any) -> tuple[Codes, Texts]:
    """Encode the strings of a column as their ranks: returns the ranks and the sorted strings."""
    codes, texts = encoded_texts(column)
    return ranks(texts)[codes] if len(texts) else codes, texts.take(pc.sort_indices(texts))


def encoded_texts(column: Any) -> tuple[Codes, Texts]:
    """Encode the strings of a column as numbers: returns the numbers and the strings; null becomes 0."""
    encoded = as_dictionary(column)
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    if isinstance(encoded, pa.ChunkedArray):  # no rows
        return np.zeros(0, np.int64), large([])
    codes = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
    # The dictionary may contain strings of other roots: keep only those that occur here.
    used = np.zeros(len(encoded.dictionary), bool)
    used[np.asarray(encoded.indices.drop_null())] = True
    if used.all():
        return codes, large(encoded.dictionary)
    number = np.cumsum(used) - 1
    texts = large(encoded.dictionary.take(pa.array(np.flatnonzero(used))))
    return np.maximum(number[codes], 0) if len(number) else codes, texts


def as_dictionary(column: Any) -> Any:
    """A column of strings, dictionary-encoded with a single dictionary; unchanged if it is already."""
    if pa.types.is_dictionary(column.type):
        return column
    encoded = column.dictionary_encode()
    return encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) and encoded.num_chunks > 1 else encoded


def as_plain(column: Any) -> Any:
    """A column of strings without dictionary encoding."""
    if not pa.types.is_dictionary(column.type):
        return column
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return combined.dictionary_decode() if isinstance(combined, pa.Array) else pa.array([], pa.string())
