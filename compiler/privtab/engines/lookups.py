"""Bulk look-ups from texts and numbers to numbers, for whole columns at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Truth, text_bytes

Bits: TypeAlias = npt.NDArray[np.uint64]

WORD = 60
"""Bits of the index's numbers in one word of an array."""
SAMPLE = 1 << 12
"""Values that tell whether a column repeats."""
DISTINCT = 0.99
"""The share of distinct values among these above which about two thirds of 200,000 are distinct."""
_EMPTY = -1
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""By number of bytes, a mask for the first ones of a word."""
MOST_REMEMBERED = 1 << 17
"""Keys that are remembered over several batches; if a batch has more, only its own are."""
SPARSE = 4
"""Slots of a table for each key, at least; at most twice as many."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""From the golden ratio: spreads neighbouring numbers far apart."""


def pair(high: Codes, low: Codes) -> Codes:
    """Combine two numbers into one, which is negative if either is -1."""
    return high << 32 | low


def few_repeat(values: pa.Array) -> bool:
    """Return whether so few of many values repeat that finding the distinct ones takes longer than it saves; the first ones tell."""
    return len(values) > 4 * SAMPLE and len(values[:SAMPLE].unique()) > DISTINCT * SAMPLE


def words(numbers: Sequence[int]) -> list[Codes]:
    """Numbers of any size as columns of `WORD` bits each, the lowest first."""
    mask = (1 << WORD) - 1
    distinct = dict.fromkeys(numbers)  # few
    positions = {number: position for position, number in enumerate(distinct)}
    codes = np.fromiter(map(positions.__getitem__, numbers), np.int64, len(numbers))
    count = max((number.bit_length() for number in distinct), default=0) // WORD + 1
    return [np.array([number >> word * WORD & mask for number in distinct], np.int64)[codes] for word in range(count)]


class HashIndex:
    """An open-addressing table from numbers to their positions among its keys."""

    def __init__(self, keys: Codes, positions: Codes | None = None) -> None:
        """`keys`: not negative, without duplicates. `positions`: of the keys that can be found; None: all. At most 31 bits each."""
        positions = np.arange(len(keys)) if positions is None else positions
        bits = max(4, int(SPARSE * len(positions)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._keys = np.append(keys, _EMPTY)  # the last one is that of an empty slot
        homes = self._home(keys[positions])
        order, numbers = np.argsort(homes), np.arange(len(homes))
        # In the order of their homes, each takes the first slot from there on that is free.
        slots = np.maximum.accumulate(homes[order] - numbers) + numbers
        self._slots = np.full(slots.max(initial=1 << bits) + 2, _EMPTY, np.int32)
        self._slots[slots] = positions[order]

    def _home(self, keys: Codes) -> Codes:
        home = keys.view(np.uint64) * _SPREAD
        home >>= self._shift
        return home.view(np.int64)

    def find(self, keys: Codes) -> Codes:
        """The position of each key; -1 if it is not in the table, as for every negative number."""
        slots = self._home(keys)
        found = self._slots.take(slots).astype(np.int64)
        pending = np.flatnonzero(self._keys.take(found) != keys)
        taken = found.take(pending) != _EMPTY
        found[pending] = _EMPTY
        pending = pending[taken]
        slots = slots.take(pending)
        while len(pending):
            slots += 1
            stored = self._slots.take(slots)
            matches = self._keys.take(stored) == keys[pending]
            found[pending[matches]] = stored[matches]
            unresolved = ~matches & (stored != _EMPTY)
            pending, slots = pending[unresolved], slots[unresolved]
        return found


class Remembered:
    """Bits that were found before, by number, so that the next batch does not look them up again. Threads may share it."""

    def __init__(self) -> None:
        self._known = np.zeros(0, np.int64), HashIndex(np.zeros(0, np.int64)), np.zeros(0, np.uint64)

    def get(self, keys: Codes, find: Callable[[Codes], Bits]) -> Bits:
        """The bits of distinct keys; `find` takes positions in `keys` and returns the bits of these."""
        known, table, bits = self._known
        found = table.find(keys)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            result = bits[found] if len(bits) else np.zeros(len(keys), np.uint64)
            result[missing] = find(missing)
            if len(known) + len(missing) > MOST_REMEMBERED:
                known, bits = keys, result
            else:
                known, bits = np.append(known, keys[missing]), np.append(bits, result[missing])
            self._known = known, HashIndex(known), bits
            return result
        return bits[found]


class TextDictionary:
    """Numbers for texts. Pickles to one Arrow array; the dictionary is rebuilt on first use.

    Example: `TextDictionary(["ann", "bob"]).find(names)`.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._codes = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._array = arrow.text_array(list(self._codes)).cast(pa.string())

    @classmethod
    def of(cls, texts: pa.Array) -> TextDictionary:
        """Number distinct texts as they are given."""
        found = cls.__new__(cls)
        found.__setstate__(texts)
        return found

    def __getstate__(self) -> pa.Array:
        return self._array

    def __setstate__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, text: str) -> int:
        return self._codes.get(text, -1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def codes(self, texts: Iterable[str], count: int) -> Codes:
        """The numbers of `count` texts; -1 for each that has none."""
        return np.fromiter(map(self._codes.get, texts, repeat(-1)), np.int64, count)

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self._array.to_pylist())}

    @cached_property
    def _table(self) -> HashIndex | None:
        """The numbers by the hashes of the texts; None if two texts have the same hash."""
        hashes = hashed(self._array)
        table = HashIndex(hashes)
        return table if (table.find(hashes) == np.arange(len(hashes))).all() else None

    def find(self, texts: pa.Array) -> Codes:
        """The number of each text; -1 if it has none. Arrow's `index_in` would make its table of all texts again for each call."""
        if self._table is None:
            return self.codes(texts.to_pylist(), len(texts))
        found = self._table.find(hashed(texts))
        hits = np.flatnonzero(found >= 0)
        same = pc.equal(texts.take(pa.array(hits)), self._array.take(pa.array(found[hits])))
        found[hits[~arrow.array_truth(same)]] = -1
        return found

    def may_have_paths(self, keys: pa.Array) -> Truth:
        """Return whether there is a number for the path of each key, or for another text with the same hash. Faster than `find`."""
        if self._table is None:
            return np.ones(len(keys), np.bool_)
        begins = arrow.array_numbers(pc.find_substring(keys, ":")) + 1
        found: Truth = self._table.find(hashed(keys, begins)) >= 0
        return found


def hashed(texts: pa.Array, skipped: Codes | None = None) -> Codes:
    """A number for each text, which few others share; never negative. `skipped`: how many bytes at its beginning do not count.

    >>> first, second, third = hashed(arrow.text_array(["a", "ab", "a"]))
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    offsets, signs = text_bytes(texts)
    padded = np.zeros(len(signs) + 8, np.uint8)
    padded[: len(signs)] = signs
    words = np.ndarray(len(signs) + 1, "<u8", padded.data, strides=(1,))  # the eight bytes from each byte on
    begins, left = offsets[:-1], np.diff(offsets)
    if skipped is not None:
        begins, left = begins + skipped, left - skipped
    found = left.astype(np.uint64)
    rows = np.arange(len(texts))
    while len(rows):
        word = words[begins] & _FIRST_BYTES[np.minimum(left, 8)]
        mixed = (found[rows] ^ word) * _SPREAD
        found[rows] = mixed ^ mixed >> np.uint64(32)
        more = np.flatnonzero(left > 8)
        rows, begins, left = rows[more], begins[more] + 8, left[more] - 8
    return found.view(np.int64) & np.int64(2**63 - 1)
