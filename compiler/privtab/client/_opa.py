"""The engine `opa`: keeps the vocabulary current and asks in few calls. Written as flows, for sync and async IO."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from privtab.client import _plan as plan
from privtab.client import _protocol as protocol
from privtab.client._answers import Undefined
from privtab.client._cache import Cache, Key, request_key
from privtab.client._engine import Flow
from privtab.client._observe import CURRENT, LOG, note_cached
from privtab.client._protocol import ActiveSystem, Call, Revision
from privtab.client._resilience import Resilience
from privtab.client._transport import Limits, Timeout
from privtab.errors import DecisionError, DecisionUnavailable, PolicyError, UsageError
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import OperationShape

T = TypeVar("T")

STATUS_SECONDS = 1.0
"""Minimum seconds between two reads of OPA's status."""


class IODriver(Protocol):
    """The IO of a client, sync or async: each method returns its result or a coroutine for it."""

    def post(self, path: str, body: bytes, timeout: Timeout) -> Any:
        """As Transport.post."""

    def get(self, path: str, timeout: Timeout) -> Any:
        """As Transport.get."""

    def sleep(self, seconds: float) -> Any:
        """Wait."""

    def together(self, flows: Iterator[Flow[None]], most: int) -> Any:
        """Run flows, at most `most` at once; the first error stops them all."""

    def acquire(self, seconds: float) -> Any:
        """Take the lock of the vocabulary within `seconds`; returns whether it was taken."""

    def release(self) -> None:
        """Release the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaSettings:
    """Settings of the `opa` engine."""

    system: str | None
    chunk_size: int
    concurrency: int
    max_staleness: float | None
    refresh: Callable[[], float]
    """Seconds for which the vocabulary is used without checking the revisions."""
    recheck: Callable[[], float]
    """Seconds after a check in which a request with an unknown name is refused without another check."""


class OpaFlows:
    """The methods of ClientEngine, as flows."""

    def __init__(self, wires: IODriver, asks: OpaSettings, resilience: Resilience, cache: Cache | None) -> None:
        self._io = wires
        self._asks = asks
        self._resilience = resilience
        self._cache = cache
        self._known: ActiveSystem | None = None
        self._state: str | None = None
        self._timed = False
        """Whether rows of the state hold for a time: then no answer is kept, since it may end at any moment."""
        self._looked_at = 0.0
        self._heard_at = float("-inf")
        self._status_at = float("-inf")

    # --- vocabulary and revisions ---

    def current(self) -> ActiveSystem | None:
        """The vocabulary if it can be used without asking OPA, else None."""
        known = self._known
        if known is None or time.monotonic() - self._looked_at >= self._asks.refresh() or self._may_be_stale():
            return None
        return known

    def known(self) -> Flow[ActiveSystem]:
        """The vocabulary of the active policy; raises DecisionUnavailable if there is none or it is too old."""
        known = yield from self._revalidate(self._known, at_most_every=self._asks.refresh())
        if self._may_be_stale():
            yield from self._check_age()
        return known

    def newer(self, known: ActiveSystem) -> Flow[ActiveSystem]:
        """The vocabulary after another check; `known` itself if it is current, or was checked a moment ago."""
        return (yield from self._revalidate(known, at_most_every=self._asks.recheck()))

    def _revalidate(self, known: ActiveSystem | None, *, at_most_every: float) -> Flow[ActiveSystem]:
        if known is not None and time.monotonic() - self._looked_at < at_most_every:
            return self._known or known
        # Waiting for the check of another thread counts against this call's deadline.
        deadline = self._deadline()
        if not (yield partial(self._io.acquire, max(deadline - self._resilience.clock(), 0.0))):
            raise DecisionUnavailable(f"OPA did not answer within {self._resilience.total:g} seconds")
        try:
            known = self._known
            if known is not None and time.monotonic() - self._looked_at < at_most_every:
                return known  # another thread has checked meanwhile
            if known is not None:
                revision = yield from self._send(protocol.policy_revision(known.system))
                known = known if revision is not None and revision == known.revision else None
            if known is None:
                known = yield from self._fetch()
            state = yield from self._send(protocol.state_revision(known))
            timed = state is None and not known.sharded
            if timed:
                state = yield from self._send(protocol.windowed_revision(known.vocabulary.system))
            if state is None:
                # A policy without a state would deny everything: an error, not a decision.
                raise protocol.no_bundle(known.vocabulary.system, "state")
            self._log_change(known, state)
            self._known, self._state, self._timed = known, state, timed
            self._looked_at = time.monotonic()
            return known
        finally:
            self._io.release()

    def _log_change(self, known: ActiveSystem, state: str) -> None:
        if self._known is None or self._known.revision != known.revision or self._state != state:
            LOG.info("system %s: policy revision %s, state revision %s", known.system, known.revision, state)
            if self._cache is not None:
                self._cache.clear()

    def _fetch(self) -> Flow[ActiveSystem]:
        if self._asks.system is not None:
            return (yield from self._send(protocol.program(self._asks.system)))
        systems = yield from self._send(protocol.programs())
        if not systems:
            raise protocol.no_bundle(None)
        if len(systems) > 1:
            names = ", ".join(f"`{name}`" for name in sorted(systems))
            raise UsageError(f"OPA has {len(systems)} systems, {names}: say which, as in Client(system=…)")
        (known,) = systems.values()
        return known

    # --- staleness of bundles ---

    def _may_be_stale(self) -> bool:
        most = self._asks.max_staleness
        return most is not None and time.monotonic() - self._heard_at > most

    def _check_age(self) -> Flow[None]:
        """Raise DecisionUnavailable if OPA has not heard from its bundle server for too long."""
        if time.monotonic() - self._status_at >= STATUS_SECONDS:
            try:
                heard = yield from self._send(protocol.status())
            except DecisionError as error:
                raise DecisionUnavailable(
                    f"max_staleness is set, and OPA does not tell how old its bundles are: {error}; "
                    "its configuration needs `status`, as in `status: {prometheus: true}`"
                ) from error
            # OPA reports wall-clock time; convert it, since the wall clock may be set later.
            self._heard_at = time.monotonic() - (time.time() - min(heard.values(), default=0.0))
            self._status_at = time.monotonic()
        if self._may_be_stale():
            age = time.monotonic() - self._heard_at
            raise DecisionUnavailable(
                f"what OPA knows is too old: it has not heard from its bundle server for {age:.0f} seconds, "
                f"and max_staleness is {self._asks.max_staleness:g}"
            )

    # --- answers ---

    def allow(self, request: Request) -> Flow[bool]:
        """Whether the request is allowed."""
        known = yield from self._names()
        call = partial(protocol.allow, known.system, request)
        return (yield from self._through_cache(known, "allow", request, call))

    def decide(self, request: Request) -> Flow[Decision]:
        """The decision with its explanation."""
        known = yield from self._names()
        call = partial(protocol.decision, known.system, request)
        return (yield from self._through_cache(known, "decide", request, call))

    def _through_cache(self, known: ActiveSystem, kind: str, request: Request, call: Callable[[], Call[T]]) -> Flow[T]:
        if self._cache is None or self._timed:
            return (yield from self._send(call()))
        key = self._key(known, kind, request_key(request))
        kept: T | None = self._cache.get(key)
        if kept is None:
            kept = yield from self._send(call())
            self._cache.put(key, kept)
        else:
            note_cached()
        return kept

    def _key(self, known: ActiveSystem, kind: str, request: Key) -> Key:
        # The revisions were read before the request was sent: an answer is at least as new as its key.
        return known.revision, self._state, kind, request

    def allow_many(
        self, requests: Sequence[Request], shapes: Sequence[OperationShape], *, few: bool = False
    ) -> Flow[list[bool]]:
        """Whether each request is allowed, by position; `few` prefers one mixed call to a call for each operation."""
        known = yield from self._names()

        def ask(positions: Sequence[int], give: Callable[[int, bool], None]) -> Iterator[Flow[None]]:
            asked = [requests[at] for at in positions]
            plans = plan.batches(asked, [shapes[at] for at in positions], known, self._asks.chunk_size, few=few)
            for number, batch in enumerate(plans):
                yield self._chunk(batch.call, [positions[at] for at in batch.positions], give, first=number == 0)

        return (yield from self._each_once(known, "allow", requests, ask))

    def allow_together(self, requests: Sequence[Request]) -> Flow[list[bool]]:
        """Whether each of several callers' checks is allowed; their names were checked."""
        vocabulary = (yield from self._names()).vocabulary
        # The vocabulary may have been renewed since, without one of these operations.
        shapes = [vocabulary.check_operation(request.resource.type, request.action) for request in requests]
        return (yield from self.allow_many(requests, shapes, few=True))

    def decide_many(self, requests: Sequence[Request]) -> Flow[list[Decision]]:
        """Decisions with explanations, by position."""
        known = yield from self._names()

        def ask(positions: Sequence[int], give: Callable[[int, Decision], None]) -> Iterator[Flow[None]]:
            for start in range(0, len(positions), self._asks.chunk_size):
                chunk = positions[start : start + self._asks.chunk_size]
                call = protocol.explained(known.system, [requests[at] for at in chunk])
                yield self._chunk(call, chunk, give, first=start == 0)

        return (yield from self._each_once(known, "decide", requests, ask))

    def visible(self, request: Request, items: Sequence[Entity]) -> Flow[list[int]]:
        """The positions of the allowed items, ascending."""
        known = yield from self._names()
        places: dict[Entity, list[int]] = {}
        for at, item in enumerate(items):
            places.setdefault(item, []).append(at)
        distinct = list(places)
        passed: list[int] = []

        def chunk(start: int, call: Call[list[int]]) -> Flow[None]:
            found = yield from self._send(call, fresh=start > 0)
            for at in found:
                passed.extend(places[distinct[start + at]])

        calls = plan.listing(request, distinct, known, self._asks.chunk_size)
        yield from self._together(chunk(start, call) for start, call in calls)
        return sorted(passed)

    def _each_once(
        self,
        known: ActiveSystem,
        kind: str,
        requests: Sequence[Request],
        ask: Callable[[Sequence[int], Callable[[int, T], None]], Iterable[Flow[None]]],
    ) -> Flow[list[T]]:
        """The answers by position: from the cache, or asked once for each distinct request."""
        cache = None if self._timed else self._cache
        answers: list[Any] = [None] * len(requests)
        first: dict[Key, int] = {}
        repeated: list[tuple[int, int]] = []
        keys: dict[int, Key] = {}
        for at, request in enumerate(requests):
            key = request_key(request)
            before = first.setdefault(key, at)
            if before != at:
                repeated.append((at, before))
            elif cache is not None:
                keys[at] = self._key(known, kind, key)
                answers[at] = cache.get(keys[at])
        open_ = [at for at in first.values() if answers[at] is None]
        if len(open_) < len(first):
            for at, before in [*((at, at) for at in first.values()), *repeated]:
                if answers[before] is not None:
                    note_cached(at)

        def give(at: int, answer: T) -> None:
            answers[at] = answer
            if cache is not None:
                cache.put(keys[at], answer)

        yield from self._together(ask(open_, give))
        if (asked := CURRENT.get()) is not None:
            asked.deadline = None  # later exchanges of the same call get a new time budget
        for at, before in repeated:
            answers[at] = answers[before]
        return answers

    def _chunk(
        self, call: Call[list[T]], positions: Sequence[int], give: Callable[[int, T], None], *, first: bool
    ) -> Flow[None]:
        answers = yield from self._send(call, fresh=not first)
        for at, answer in zip(positions, answers, strict=True):
            give(at, answer)

    def _together(self, flows: Iterable[Flow[None]]) -> Flow[None]:
        if self._asks.concurrency == 1:
            for flow in flows:
                yield from flow
        else:
            yield partial(self._io.together, iter(flows), self._asks.concurrency)

    # --- OPA itself ---

    def healthy(self) -> Flow[bool]:
        """Whether OPA answers and all of its bundles are active; one attempt, whatever the state of the circuit."""
        timeout = self._resilience.timeout
        limits = Limits(*timeout, total=self._resilience.total)
        try:
            yield partial(self._io.get, protocol.HEALTH_PATH, limits)
        except DecisionError:
            return False
        return True

    def revision(self) -> Flow[Revision]:
        """The active revisions."""
        system = self._asks.system or (yield from self._names()).system
        own_name = (yield from self._send(protocol.system_name(system))) or system
        policy = yield from self._send(protocol.policy_revision(system))
        sharded = yield from self._send(protocol.layout(system))
        ask = protocol.combined_revision(system) if sharded else protocol.own_state_revision(own_name)
        state = yield from self._send(ask)
        if state is None and not sharded:
            state = yield from self._send(protocol.windowed_revision(own_name))
        return Revision(policy=policy, state=state)

    # --- private ---

    def _names(self) -> Flow[ActiveSystem]:
        return self._known or (yield from self.known())

    def _deadline(self) -> float:
        """The deadline of the caller's call, set at its first exchange."""
        asked = CURRENT.get()
        if asked is None:
            return self._resilience.deadline()
        if asked.deadline is None:
            asked.deadline = self._resilience.deadline()
        return asked.deadline

    def _send(self, call: Call[T], *, fresh: bool = False) -> Flow[T]:
        """The answer to one exchange, within the caller's deadline; a further chunk (`fresh`) gets the full time again."""
        deadline = self._resilience.deadline() if fresh else self._deadline()
        exchange: Callable[[Limits], Any]
        if call.body is None:
            exchange = partial(self._io.get, call.path)
        else:
            exchange = partial(self._io.post, call.path, call.body)
        body = yield from self._resilience.attempts(exchange, self._io.sleep, deadline)
        try:
            try:
                return call.read(body)
            except Undefined:
                if call.body is None:
                    raise
            # A restarted OPA activates its bundles one by one. Checking again raises if one is still missing;
            # otherwise the rule is defined by now.
            yield from self._revalidate(self._known, at_most_every=0.0)
            body = yield from self._resilience.attempts(exchange, self._io.sleep, deadline)
            try:
                return call.read(body)
            except Undefined:
                known = self._known
                if known is None or not known.sharded or call.body is None:
                    raise
            # The principals are active, so a shard is missing, or was until just now.
            asked = protocol.inactive(known.system, call.body)
            exchange_inactive = partial(self._io.post, asked.path, call.body)
            body = yield from self._resilience.attempts(exchange_inactive, self._io.sleep, deadline)
            if roots := asked.read(body):
                raise protocol.no_shard(known.system, roots)
            body = yield from self._resilience.attempts(exchange, self._io.sleep, deadline)
            return call.read(body)
        except Undefined as error:
            raise PolicyError(str(error)) from None
