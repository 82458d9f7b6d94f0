"""Keep what was used last, within a number of entries, a weight, and a time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key; the values that were not used for longest are dropped first. Threads share one with a lock of their own.

    `most`: of the entries. `heaviest`: of the sum of the weights, of which `weight` gives each, when its value is put; the last
    entry stays however heavy. `seconds`: how long a value is kept after it was put. `dropped` is called for each entry that is
    dropped for the sake of others.

    >>> last = RecentlyUsed(2)
    >>> for key in ("a", "b", "a", "c"):
    ...     last.put(key, key.upper()) if last.get(key) is None else None
    >>> list(last.items())
    [('a', 'A'), ('c', 'C')]
    """

    def __init__(
        self,
        most: float = inf,
        *,
        weight: Callable[[V], int] | None = None,
        heaviest: float = inf,
        seconds: float = inf,
        clock: Callable[[], float] = time.monotonic,
        dropped: Callable[[K, V], object] | None = None,
    ) -> None:
        self._most, self._heaviest, self._seconds = most, heaviest, seconds
        self._weight, self._clock, self._dropped = weight, clock, dropped
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self._total = 0

    def get(self, key: K) -> V | None:
        """The value of a key, which is now the last used; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, until = entry
        if until != inf and self._clock() >= until:
            self.pop(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value, which is now the last used, in the place of that of the same key."""
        self.pop(key)
        weight = 0 if self._weight is None else self._weight(value)
        self._entries[key] = value, weight, inf if self._seconds == inf else self._clock() + self._seconds
        self._total += weight
        while len(self._entries) > self._most or (self._total > self._heaviest and len(self._entries) > 1):
            oldest, (dropped, lost, _) = self._entries.popitem(last=False)
            self._total -= lost
            if self._dropped is not None:
                self._dropped(oldest, dropped)

    def pop(self, key: K) -> V | None:
        """Remove a key; returns its value, or None."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._total -= entry[1]
        return entry[0]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._total = 0

    def peek(self, key: K) -> V | None:
        """The value of a key, without using it; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values, the last used last, without using them."""
        return ((key, entry[0]) for key, entry in self._entries.items())

    def values(self) -> Iterator[V]:
        """The values, the last used last, without using them."""
        return (entry[0] for entry in self._entries.values())

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
