"""Group commit: threads that write at the same time share transactions, so that the disk is synchronised once for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Take: TypeAlias = Callable[[], Sequence[T]]
"""Returns what threads have asked for and nobody has taken yet; nothing once a transaction has enough."""
MOST_TOGETHER = 100
"""Changes after which a transaction takes no more."""


class _Group(Generic[T]):
    """What one thread asked for, which belongs into one transaction."""

    __slots__ = ("done", "items", "leads", "turn")

    def __init__(self, items: Sequence[T]) -> None:
        self.items = items
        self.done = self.leads = False
        self.turn = Lock()
        """Released when all items are done, or when the thread is to write."""
        self.turn.acquire()


class GroupCommit(Generic[T]):
    """One thread at a time writes, in one transaction, what all threads ask for until it commits; the others wait for that."""

    def __init__(self, write: Callable[[Take[T]], None]) -> None:
        """`write` carries out what it takes; it must take at least once, and leave the outcome in the items."""
        self._write = write
        self._lock = Lock()
        self._queue: deque[_Group[T]] = deque()
        self._busy = False
        """Whether a thread writes, or was told to."""

    def submit(self, items: Sequence[T]) -> None:
        """Have items written; returns when their transaction has ended."""
        group = _Group(items)
        with self._lock:
            self._queue.append(group)
            group.leads = not self._busy
            self._busy = True
        if not group.leads:
            try:
                group.turn.acquire()
            except BaseException:  # An interrupt, such as KeyboardInterrupt: nobody waits for the items any more.
                self._leave(group)
                raise
        if not group.done:
            self._lead(group)

    def waiting(self) -> int:
        """The number of threads that wait for a transaction to take their items."""
        return len(self._queue)

    def _lead(self, group: _Group[T]) -> None:
        taken: list[_Group[T]] = []
        try:
            self._write(lambda: self._take(taken))
        finally:
            self._leave(group)
            for written in taken:
                written.done = True
                written.turn.release()

    def _take(self, taken: list[_Group[T]]) -> list[T]:
        items: list[T] = []
        with self._lock:
            count = sum(len(group.items) for group in taken)
            while self._queue and count < MOST_TOGETHER:
                group = self._queue.popleft()
                taken.append(group)
                items += group.items
                count += len(group.items)
        return items

    def _leave(self, group: _Group[T]) -> None:
        """Forget a group that nobody took; if its thread leads, let the one that has waited longest write next."""
        with self._lock:
            if group in self._queue:
                self._queue.remove(group)
            if group.leads:
                self._busy = bool(self._queue)
                if self._busy:
                    self._queue[0].leads = True
                    self._queue[0].turn.release()
