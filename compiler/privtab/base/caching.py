"""Cache results for policies and programs. These hold mappings, so they are compared by identity."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Generic, TypeVar

K = TypeVar("K")
H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

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
