"""Keep results and values in memory, and the garbage collector away from them.

Policies and programs hold mappings, so results for them are cached by identity.
"""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")
H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")

_CACHE_SIZE = 4
"""Programs are compared in pairs; keep a few more than are in use at once."""


_PARTS = 1 << 15
"""Rules of a large program, before and after the passes."""


class _ById(Generic[K]):
    """A value as a cache key. It keeps the value alive, so that no other value can get the same identity."""

    __slots__ = ("value",)

    def __init__(self, value: K) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.value is self.value


def once(work: Callable[[K], T]) -> Callable[[K], T]:
    """Cache the last few results of a function.

    >>> @once
    ... def size(program: dict[str, int]) -> int:
    ...     return len(program)
    >>> size({"a": 1})
    1
    """

    @lru_cache(maxsize=_CACHE_SIZE)
    def by_identity(key: _ById[K]) -> T:
        return work(key.value)

    latest: tuple[K, T] | None = None
    """The last key and its result, which are asked for most."""

    @wraps(work)
    def cached(value: K) -> T:
        nonlocal latest
        known = latest
        if known is None or known[0] is not value:
            known = latest = value, by_identity(_ById(value))
        return known[1]

    return cached


def once_within(work: Callable[[K, H], T]) -> Callable[[K, H], T]:
    """Cache the results of a function for a program and each value that it is asked about."""

    @once
    def results(_whole: K) -> dict[H, T]:
        return {}

    @wraps(work)
    def cached(whole: K, part: H) -> T:
        known = results(whole)
        if part not in known:
            known[part] = work(whole, part)
        return known[part]

    return cached


def once_for_each(work: Callable[[K], T]) -> Callable[[K], T]:
    """Cache the results of a function for the parts of a program, such as its rules."""

    @lru_cache(maxsize=_PARTS)
    def by_identity(key: _ById[K]) -> T:
        return work(key.value)

    @wraps(work)
    def cached(value: K) -> T:
        return by_identity(_ById(value))

    return cached


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


@contextmanager
def no_collection(*, keep: bool = False) -> Iterator[None]:
    """Disable garbage collection in the block: millions of small objects are all live, and the search takes up to half of the time.

    `keep`: exclude everything from later collections too, since it stays alive until the process ends.

    >>> with no_collection():
    ...     gc.isenabled()
    False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if keep:
            gc.freeze()
        if enabled:
            gc.enable()
