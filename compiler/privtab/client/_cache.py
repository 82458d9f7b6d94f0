"""Answers that are kept for a while: by the revisions that gave them, bounded in number and in time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeAlias

from privtab.client._fork import renew_after_fork
from privtab.request import Decision, Request

Key: TypeAlias = Hashable


def request_key(request: Request) -> Key:
    """Equal for requests that are asked alike."""
    resource = request.resource
    if not (request.groups or request.with_ or request.flags):
        return request.user, request.action, resource.type, resource.id
    beside = request.groups, tuple(sorted((n, e.type, e.id) for n, e in request.with_.items())), request.flags
    return request.user, request.action, resource.type, resource.id, *beside


def _own(answer: Any) -> Any:
    """An answer that its owner may change, as the context of a decision can be, without anybody else's becoming another."""
    return replace(answer, context=deepcopy(dict(answer.context))) if isinstance(answer, Decision) else answer


class Cache:
    """Keeps at most `size` answers, each for at most `seconds`; the one used longest ago goes first.

    The key is of the caller's making and holds the revisions: an answer of another policy or state is never found.
    """

    def __init__(self, size: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A forked process begins with nothing: another thread may have been at it."""
        self._kept: OrderedDict[Key, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, float]:
        """The settings alone."""
        return self._size, self._seconds

    def __setstate__(self, state: tuple[int, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Any:
        """The answer, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            until, answer = found
            if self._clock() >= until:
                del self._kept[key]
                return None
            self._kept.move_to_end(key)
            return _own(answer)

    def put(self, key: Key, answer: Any) -> None:
        """Keep an answer."""
        with self._lock:
            self._kept[key] = (self._clock() + self._seconds, _own(answer))
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
