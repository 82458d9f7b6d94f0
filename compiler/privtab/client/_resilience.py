"""Deadlines, retries, the circuit breaker and the cache of answers, without IO and shared by every sender.

A decision has no side effect in OPA, so retrying is always safe. Failures that would recur are not retried: a 4xx, a
wrong shape, an untrusted certificate.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from privtab.base.caching import RecentlyUsed
from privtab.base.errors import DecisionUnavailable, PrivtabError
from privtab.base.records import dataclass
from privtab.base.request import Decision, Request
from privtab.client._engine import Flow, renew_after_fork
from privtab.client._observe import LOG
from privtab.client._transport import Limits, Timeout

LONGEST_OPEN = 30.0
"""Longest time in seconds that the circuit stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The number of retries of a failed exchange, and the pause before each."""

    most: int = 2
    first: float = 0.05
    """Seconds, doubled for each further retry. The pause is random between zero and this, so that clients spread."""
    longest: float = 1.0

    def pause(self, attempt: int, error: DecisionUnavailable) -> float:
        """Seconds to wait after attempt number `attempt`, from 0; at least OPA's Retry-After."""
        delay = random.uniform(0, min(self.longest, self.first * 2**attempt))  # noqa: S311  (spreads load, no secret)
        return max(delay, error.retry_after or 0.0)


class ForThisProcess:
    """Base of objects that a forked process, and a copy in another process, make anew from their settings: a number and seconds."""

    def __init__(self, number: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._number = number
        self._seconds = seconds
        self._clock = clock
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Begin anew: another thread may have held the lock."""
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, float]:
        return self._number, self._seconds

    def __setstate__(self, state: tuple[int, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]


class Breaker(ForThisProcess):
    """Circuit breaker: fails at once while OPA is known to be down, so that callers do not queue behind its timeouts.

    Closed: all exchanges pass. After `failures` failed exchanges in a row it opens for `seconds`, then lets one exchange
    through (half-open), which closes the circuit or opens it for twice as long. With `failures` of 0 it never opens.
    """

    def after_fork(self) -> None:
        """Start closed."""
        super().after_fork()
        self._failed = 0
        self._open_for = self._seconds
        self._until: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        if self._until is None:
            return "closed"
        return "half-open" if self._probing or self._clock() >= self._until else "open"

    def before(self) -> None:
        """Raise DecisionUnavailable if nothing may be sent now."""
        if self._until is not None:
            self._check_may_send()

    def _check_may_send(self) -> None:
        with self._lock:
            if self._until is None:
                return
            remaining = self._until - self._clock()
            if remaining <= 0 and not self._probing:
                self._probing = True
                return
        when = f"OPA is tried again in {remaining:.1f} seconds" if remaining > 0 else "one call is trying OPA now"
        raise DecisionUnavailable(f"the circuit is open after {self._failed} failures in a row: {when}", retry=False)

    def succeeded(self) -> None:
        """Record an answer of any kind."""
        if not self._failed:
            return
        with self._lock:
            was_open = self._until is not None
            self._failed, self._until, self._probing, self._open_for = 0, None, False, self._seconds
        if was_open:
            LOG.warning("OPA answers again: the circuit is closed")

    def failed(self, error: Exception) -> None:
        """Record a failed exchange."""
        if not self._number:
            return
        with self._lock:
            self._failed += 1
            if self._until is not None and not self._probing:
                return  # it was sent before the circuit opened
            if not self._probing and self._failed < self._number:
                return
            if self._probing:
                self._open_for = min(self._open_for * 2, LONGEST_OPEN)
            self._probing = False
            self._until = self._clock() + self._open_for
        LOG.warning("the circuit is open for %.1f seconds: %s", self._open_for, error)

    def abandoned(self) -> None:
        """Record that the caller gave up before an answer came, which does not count as a failure."""
        self._probing = False


@dataclass(slots=True, kw_only=True)
class Resilience:
    """Timeouts, retries and circuit breaker for exchanges."""

    timeout: Timeout
    total: float
    """Seconds for one call, including look-ups of names, retries and pauses."""
    retries: Retries
    breaker: Breaker
    clock: Callable[[], float] = time.monotonic

    def deadline(self) -> float:
        return self.clock() + self.total

    def attempts(
        self, exchange: Callable[[Limits], Any], sleep: Callable[[float], Any], deadline: float
    ) -> Flow[bytes]:
        """The body of the answer; retries while that may help and time is left."""
        attempt = 0
        while True:
            remaining = deadline - self.clock()
            if remaining <= 0:
                raise DecisionUnavailable(f"OPA did not answer within {self.total:g} seconds")
            # Comes last: a probe that is let through must report its outcome.
            self.breaker.before()
            try:
                body: bytes = yield partial(exchange, Limits(*self.timeout, total=remaining))
            except DecisionUnavailable as error:
                self.breaker.failed(error)
                pause = self.retries.pause(attempt, error)
                if not error.retry or attempt >= self.retries.most or pause >= deadline - self.clock():
                    raise
                LOG.debug("tried again in %.3f seconds: %s", pause, error)
            except PrivtabError:
                self.breaker.succeeded()
                raise
            except BaseException:
                self.breaker.abandoned()
                raise
            else:
                self.breaker.succeeded()
                return body
            attempt += 1
            yield partial(sleep, pause)


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


class Cache(ForThisProcess):
    """LRU cache of at most `size` answers, each kept for at most `seconds`.

    Keys include the revisions, so an answer of another policy or state is never returned.
    """

    def after_fork(self) -> None:
        """Start empty: another thread may have been changing the cache."""
        super().after_fork()
        self._entries: RecentlyUsed[Key, Any] = RecentlyUsed(self._number, seconds=self._seconds, clock=self._clock)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Any:
        with self._lock:
            return _copy(self._entries.get(key))

    def put(self, key: Key, answer: Any) -> None:
        with self._lock:
            self._entries.put(key, _copy(answer))

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
