"""Columns of requests: texts read once, and the entities on their paths by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes, Truth
from privtab.engines.arrays import Arrays
from privtab.names import ESCAPES

Texts: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[str | None]
"""A column of texts."""
Reasons: TypeAlias = npt.NDArray[np.uint8]

REASONS = (
    None,
    "null",
    "malformed path",
    "wrong depth",
    "unknown operation",
    "not of a type that the operation takes",
    "a required flag is not said",
)
"""Why a row is denied without evaluation, by code; 0: it was evaluated."""
OK, NULL, MALFORMED, DEPTH, UNKNOWN, WITH, FLAG = range(len(REASONS))

WELL_SPELT = r"\A(?:(?:[^%]|%2F|%25)*|(?:%2A|%3F)+)\z"
WILDCARD = r"\A[*?]+\z"


def texts(column: Texts) -> pa.Array:
    """A column as one array of strings. Raises pyarrow.ArrowException if it is not text."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        return pa.array(column, pa.string())
    return column if column.type == pa.string() else column.cast(pa.string())


class Paths:
    """A column of well-formed paths of entities of one type, all with the same number of names."""

    def __init__(
        self, parts: pa.Array, width: int, rows: int, arrays: Arrays, chains: Mapping[str, Sequence[tuple[str, int]]]
    ) -> None:
        """`parts`: the names of the first path, then of the second, and so on; `width` for each."""
        self._parts = parts
        self._width = width
        self._rows = rows
        self._arrays = arrays
        self._chains = chains
        self._names: dict[int, pa.Array] = {}
        self._places: dict[str, Codes] = {}

    def name(self, depth: int) -> pa.Array:
        """The names at a depth, counted from 1."""
        if depth == 0:
            return pa.array([""] * self._rows, pa.string())
        if depth not in self._names:
            at = pa.array(np.arange(depth - 1, self._width * self._rows, self._width))
            self._names[depth] = self._parts if self._width == 1 else self._parts.take(at)
        return self._names[depth]

    def path(self, depth: int) -> pa.Array:
        """The first `depth` names of each path, as text."""
        return (
            pc.binary_join_element_wise(*(self.name(at) for at in range(1, depth + 1)), "/") if depth else self.name(0)
        )

    def whole(self) -> pa.Array:
        """The paths as text."""
        return self.path(self._width)

    def places(self, type_: str) -> Codes:
        """The entities of a type on the paths, by number; -1 if the state does not name the entity."""
        if type_ not in self._places:
            chain = self._chains[type_]
            above = np.zeros(self._rows, np.int64) if len(chain) == 1 else self.places(chain[-2][0])
            kind = self._arrays.kinds[type_]
            self._places[type_] = kind.find(above, None if kind.single else self.name(chain[-1][1]))
        return self._places[type_]


def split(ids: pa.Array) -> tuple[pa.ListArray, Codes, Truth]:
    """Split paths without nulls: their names, how many each has, and which paths are well formed."""
    lists = pc.split_pattern(ids, "/")
    widths = np.diff(lists.offsets.to_numpy())
    lengths = pc.binary_length(lists.values).to_numpy(zero_copy_only=False)
    good = np.ones(len(ids), np.bool_)
    if len(lengths) and not lengths.all():
        good[np.repeat(np.arange(len(ids)), widths)[lengths == 0]] = False
        none = pc.equal(pc.binary_length(ids), 0).to_numpy(zero_copy_only=False)
        good[none] = True
        widths = np.where(none, 0, widths)
    if any(sign in _bytes(ids) for sign in (b"%", b"*", b"?")):
        spelt = pc.match_substring_regex(lists.values, WELL_SPELT).to_numpy(zero_copy_only=False)
        spelt &= ~pc.match_substring_regex(lists.values, WILDCARD).to_numpy(zero_copy_only=False)
        good[np.repeat(np.arange(len(ids)), np.diff(lists.offsets.to_numpy()))[~spelt]] = False
    return lists, widths, good


def _bytes(texts: pa.Array) -> bytes:
    """The bytes of all texts in one piece; searching them at once is much faster than text by text."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)
    return bytes(memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]])


def decoded(names: pa.Array) -> pa.Array:
    """Names of paths, decoded to the form of principals' names."""
    for sign, escape in reversed(ESCAPES):
        names = pc.replace_substring(names, escape, sign)
    return names
