"""Deadlines, retries and the circuit breaker: no waiting and no wires here, shared by every sender.

A decision has no effect in OPA, so asking again is always safe; what is never asked again is what would be answered the
same: a 4xx, a wrong shape, a certificate that is not trusted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from privtab.client._engine import Flow
from privtab.client._fork import renew_after_fork
from privtab.client._observe import LOG
from privtab.client._transport import Limits, Timeout
from privtab.errors import DecisionUnavailable, PrivtabError

LONGEST_OPEN = 30.0
"""Seconds; an OPA that is back is noticed after that at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often, and after which pause, a failed exchange is tried again."""

    most: int = 2
    first: float = 0.05
    """Seconds; doubled for each further try. The pause is drawn between nothing and that, so that callers spread."""
    longest: float = 1.0

    def pause(self, tried: int, error: DecisionUnavailable) -> float:
        """Seconds to wait after the attempt number `tried`, from 0; what OPA asks for by Retry-After is the least."""
        drawn = random.uniform(0, min(self.longest, self.first * 2**tried))  # noqa: S311  (spreads load, no secret)
        return max(drawn, error.retry_after or 0.0)


class Breaker:
    """Refuses at once while OPA is known to be away, so that callers do not queue up behind its timeouts.

    Closed: all pass. After `failures` failed exchanges in a row it opens for `seconds`, then one exchange is let through
    (half-open): it closes the circuit, or opens it for twice as long. `failures` of 0 leaves it closed for good.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A forked process makes its own experience."""
        self._lock = threading.Lock()
        self._failed = 0
        self._open_for = self._seconds
        self._until: float | None = None
        self._probing = False

    def __getstate__(self) -> tuple[int, float]:
        """The settings alone: a copy in another process makes its own experience."""
        return self._most, self._seconds

    def __setstate__(self, state: tuple[int, float]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def state(self) -> str:
        """`closed`, `open` or `half-open`."""
        if self._until is None:
            return "closed"
        return "half-open" if self._probing or self._clock() >= self._until else "open"

    def before(self) -> None:
        """Raise DecisionUnavailable where nothing may be sent now."""
        if self._until is not None:
            self._enter()

    def _enter(self) -> None:
        with self._lock:
            if self._until is None:
                return
            left = self._until - self._clock()
            if left <= 0 and not self._probing:
                self._probing = True
                return
        when = f"OPA is tried again in {left:.1f} seconds" if left > 0 else "one call is trying OPA now"
        raise DecisionUnavailable(f"the circuit is open after {self._failed} failures in a row: {when}", retry=False)

    def succeeded(self) -> None:
        """OPA answered, whatever it said."""
        if not self._failed:
            return
        with self._lock:
            was_open = self._until is not None
            self._failed, self._until, self._probing, self._open_for = 0, None, False, self._seconds
        if was_open:
            LOG.warning("OPA answers again: the circuit is closed")

    def failed(self, error: Exception) -> None:
        """No answer came."""
        if not self._most:
            return
        with self._lock:
            self._failed += 1
            if self._until is not None and not self._probing:
                return  # one that was on its way when the circuit opened
            if not self._probing and self._failed < self._most:
                return
            if self._probing:
                self._open_for = min(self._open_for * 2, LONGEST_OPEN)
            self._probing = False
            self._until = self._clock() + self._open_for
        LOG.warning("the circuit is open for %.1f seconds: %s", self._open_for, error)

    def abandoned(self) -> None:
        """The caller gave up before an answer came; that says nothing of OPA."""
        self._probing = False


@dataclass(slots=True, kw_only=True)
class Resilience:
    """What stands around every exchange."""

    timeout: Timeout
    total: float
    """Seconds for one call of a caller, names, retries and pauses included."""
    retries: Retries
    breaker: Breaker
    clock: Callable[[], float] = time.monotonic

    def deadline(self) -> float:
        """When a call that begins now has to end."""
        return self.clock() + self.total

    def attempts(
        self, exchange: Callable[[Limits], Any], sleep: Callable[[float], Any], deadline: float
    ) -> Flow[bytes]:
        """The body of the answer; tries again while that may help and time is left."""
        tried = 0
        while True:
            left = deadline - self.clock()
            if left <= 0:
                raise DecisionUnavailable(f"OPA did not answer within {self.total:g} seconds")
            # Last of all: who is let through as the probe has to say how it ended.
            self.breaker.before()
            try:
                body: bytes = yield partial(exchange, Limits(*self.timeout, total=left))
            except DecisionUnavailable as error:
                self.breaker.failed(error)
                pause = self.retries.pause(tried, error)
                if not error.retry or tried >= self.retries.most or pause >= deadline - self.clock():
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
            tried += 1
            yield partial(sleep, pause)
