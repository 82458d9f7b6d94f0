"""Write nested JSON objects from Arrow arrays without a Python object for each row.

The text of an object is a sequence of pieces: `"USE":{`, `"catalog:m":{`, `"role:r":true`, `,"role:s":true`, `}`. Every piece
occurs once in an array of strings; numpy computes their order; the data buffer of `pieces.take(order)` is the text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Codes: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Texts: TypeAlias = Any
"""A pyarrow array of `large_string`."""

_ROWS = 1 << 20
"""Number of rows whose pieces are assembled at a time, which limits memory."""


def large(values: Sequence[str] | Any) -> Texts:
    """Strings as an Arrow array with 64-bit offsets."""
    if isinstance(values, pa.ChunkedArray):
        return values.cast(pa.large_string()).combine_chunks()
    return values.cast(pa.large_string()) if isinstance(values, pa.Array) else pa.array(values, pa.large_string())


def is_ascii(values: Texts) -> bool:
    """Whether all strings are ASCII without DEL, so that `ensure_ascii` makes no difference to their JSON."""
    return _as_they_are(values) or not pc.any(_beyond_ascii(values)).as_py()


def json_texts(values: Texts, *, ascii_: bool = False) -> Texts:
    r"""Each string as JSON, byte for byte like `json.dumps`; `ascii_`: with other characters as `\uXXXX`.

    >>> json_texts(large(['a"b', "c"])).to_pylist()
    ['"a\\"b"', '"c"']
    """
    quote = pa.scalar('"', pa.large_string())
    if _as_they_are(values):
        return pc.binary_join_element_wise(quote, values, quote, pa.scalar("", pa.large_string()))
    escaped = values
    if pc.any(pc.match_substring_regex(values, r'[\\"\n]')).as_py():
        escaped = pc.replace_substring(escaped, "\\", "\\\\")
        escaped = pc.replace_substring(escaped, '"', '\\"')
        escaped = pc.replace_substring(escaped, "\n", "\\n")
    quoted = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", pa.large_string()))
    has_control = pc.match_substring_regex(values, r"[\x00-\x09\x0b-\x1f]")
    if ascii_:
        has_control = pc.or_(has_control, _beyond_ascii(values))
    if pc.any(has_control).as_py():
        written = [json.dumps(text, ensure_ascii=ascii_) for text in values.filter(has_control).to_pylist()]
        quoted = pc.replace_with_mask(quoted, has_control, large(written))
    return quoted


_ODD = np.array([byte < 0x20 or byte >= 0x7F or byte in b'"\\' for byte in range(256)])
_LOOKED_AT = 1 << 20


def _as_they_are(values: Texts) -> bool:
    """Whether no string has a byte that JSON may escape; one pass over all bytes, faster than a regular expression."""
    data = memoryview(_bytes(values))
    parts = (data[start : start + _LOOKED_AT] for start in range(0, len(data), _LOOKED_AT))
    return not any(bool(_ODD[np.frombuffer(part, np.uint8)].any()) for part in parts)


def _beyond_ascii(values: Texts) -> Any:
    return pc.or_(pc.invert(pc.string_is_ascii(values)), pc.match_substring(values, "\x7f"))


def joined(*parts: Texts | str) -> Texts:
    """Concatenate arrays element by element; a `str` is repeated for each element."""
    values = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*values, pa.scalar("", pa.large_string()))


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


def nested(levels: Sequence[tuple[Codes, Texts]], leaves: tuple[Codes, Texts]) -> list[bytes]:
    """Write nested objects: `levels` has, for each level, the code of its key in every row and the keys as JSON; `leaves` likewise.

    Rows must be sorted by all levels and distinct. A leaf is a complete member: `"role:r":true`. Returns the text, with its outer
    braces, in pieces.
    """
    count = len(leaves[0])
    if count == 0:
        return [b"{}"]
    pools: list[Texts] = []
    starts: list[tuple[int, int]] = []
    position = 0
    for texts in (*(joined(keys, ":{") for _, keys in levels), leaves[1]):
        pools += [texts, joined(",", texts)]
        starts.append((position, position + len(texts)))
        position += 2 * len(texts)
    closes = position
    pools.append(large(["}" * number for number in range(len(levels) + 1)]))
    pool = pa.concat_arrays(pools)
    text = [b"{"]
    for first in range(0, count, _ROWS):
        last = min(first + _ROWS, count)
        text.append(_rows(levels, leaves[0], starts, closes, pool, first, last))
    text.append(b"}" * (len(levels) + 1))
    return text


def _rows(
    levels: Sequence[tuple[Codes, Texts]],
    leaves: Codes,
    starts: Sequence[tuple[int, int]],
    closes: int,
    pool: Texts,
    first: int,
    last: int,
) -> bytes:
    """The text of rows `first` to `last`, without the braces that close the last."""
    size = last - first
    depth = len(levels)
    order = np.full((size, depth + 2), -1, np.int64)
    fresh = np.zeros(size, bool)
    """Rows at which an object of a level above begins."""
    closed = np.zeros(size, np.int64)
    for level, (codes, _) in enumerate(levels):
        begins = fresh.copy()
        chunk = codes[first:last]
        begins[1:] |= chunk[1:] != chunk[:-1]
        begins[0] |= first == 0 or codes[first - 1] != chunk[0]
        plain, comma = starts[level]
        opened = np.where(fresh | (_is_first(size, first)), plain, comma) + chunk
        order[:, 1 + level] = np.where(begins, opened, -1)
        closed += begins
        fresh = begins
    plain, comma = starts[depth]
    order[:, 1 + depth] = np.where(fresh | (_is_first(size, first)), plain, comma) + leaves[first:last]
    if first == 0:
        closed[0] = 0
    order[:, 0] = np.where(closed > 0, closes + closed, -1)
    flat = order.ravel()
    return buffer(pool.take(pa.array(flat[flat >= 0])))


def _is_first(size: int, first: int) -> Any:
    """A mask of the first row of the whole text."""
    found = np.zeros(size, bool)
    if first == 0:
        found[0] = True
    return found


def buffer(texts: Texts) -> bytes:
    """All strings of an array, concatenated."""
    return bytes(_bytes(texts))


def _bytes(texts: Texts) -> memoryview:
    """The same without a copy; includes the bytes behind nulls."""
    data, offsets = texts.buffers()[2], texts.buffers()[1]
    if data is None or offsets is None or not len(texts):
        return memoryview(b"")
    places = np.frombuffer(offsets, np.int64)
    return memoryview(data)[int(places[texts.offset]) : int(places[texts.offset + len(texts)])]
