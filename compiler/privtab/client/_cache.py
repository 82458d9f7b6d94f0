"""Cache of answers, keyed by revision and bounded in size and age."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeAlias

from privtab.client._engine import renew_after_fork
from privtab.request import Decision, Request

Key: TypeAlias = Hashable


def request_key(request: Request) -> Key:
    """A key that is equal for equal requests."""
    resource = request.resource
    if request.plain:
        return request.user, request.action, resource.type, resource.id
    attributes = json.dumps(dataclasses.asdict(request.attributes), sort_keys=True) if request.attributes else ""
    withs = tuple(sorted((n, e.type, e.id) for n, e in request.with_.items()))
    rest = request.groups, withs, request.flags, request.active_roles, attributes
    return request.user, request.action, resource.type, resource.id, *rest


def _copy(answer: Any) -> Any:
    """A copy of an answer, so that changing the context of a decision does not change the cached one."""
    return replace(answer, context=deepcopy(dict(answer.context))) if isinstance(answer, Decision) else answer


class Cache:
    """LRU cache of at most `size` answers, each kept for at most `seconds`.

    Keys include the revisions, so an answer of another policy or state is never returned.
    """

    def __init__(self, size: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start empty in a forked process: another thread may have been changing the cache."""
        self._entries: OrderedDict[Key, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, float]:
        """The settings only."""
        return self._size, self._seconds

    def __setstate__(self, state: tuple[int, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Any:
        """The cached answer, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            expires, answer = entry
            if self._clock() >= expires:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return _copy(answer)

    def put(self, key: Key, answer: Any) -> None:
        """Add an answer."""
        with self._lock:
            self._entries[key] = (self._clock() + self._seconds, _copy(answer))
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all answers."""
        with self._lock:
            self._entries.clear()
