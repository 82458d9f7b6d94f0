"""The engine `opa`: keeps the vocabulary current and asks in few calls. Written as flows, for sync and async IO."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from privtab.base.errors import DecisionError, DecisionUnavailable, PolicyError, UsageError
from privtab.base.request import Decision, Entity, Request
from privtab.base.sql_text import AppliedFilter
from privtab.base.vocabulary import OperationShape
from privtab.client import _plan as plan
from privtab.client import _protocol as protocol
from privtab.client._config import Settings
from privtab.client._engine import Flow
from privtab.client._observe import CURRENT, LOG, note_cached
from privtab.client._protocol import ActiveSystem, Call, Revision, Undefined
from privtab.client._resilience import Breaker, Cache, Key, Resilience, Retries, request_key
from privtab.client._transport import Limits, Timeout

if TYPE_CHECKING:
    from privtab.base.attributes import Scalar
    from privtab.filters.filter import Filter, Question

T = TypeVar("T")
U = TypeVar("U")

REFRESH_SECONDS = 60.0
"""Seconds for which the vocabulary is used without checking the policy's revision."""
RECHECK_SECONDS = 5.0
"""Seconds after a check in which a request with an unknown name is refused without another check."""
FIRST_CHUNK = 100
"""Most requests of an exchange before it is known how long OPA takes for one."""
FILTER_ATTEMPTS = 3
"""Maximum number of times a filter is made while policy or state change."""
STATUS_SECONDS = 1.0
"""Minimum seconds between two reads of OPA's status."""


class Pace:
    """The number of requests that OPA answers in a quarter of the permitted time, by the measured time of the last answer."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds / 4
        self._size = min(most, FIRST_CHUNK)

    def size(self) -> int:
        """Return the maximum number of requests in the next exchange."""
        return self._size

    def answered(self, requests: int, seconds: float) -> None:
        """Take note of how long the answer to an exchange took."""
        fitting = int(self._seconds * requests / max(seconds, 1e-6))
        # Few requests tell little: an exchange has a time of its own.
        if fitting < self._size or requests >= self._size:
            self._size = max(1, min(self._most, fitting, 10 * self._size))


class IODriver(Protocol):
    """The IO of a client, sync or async: each method returns its result or a coroutine for it."""

    def post(self, path: str, body: bytes, timeout: Timeout) -> Any:
        """As Transport.post."""

    def get(self, path: str, timeout: Timeout) -> Any:
        """As Transport.get."""

    def sleep(self, seconds: float) -> Any:
        """Wait."""

    def run_all(self, flows: Iterator[Flow[None]], limit: int) -> Any:
        """Run flows, at most `limit` at once; the first error stops them all."""

    def acquire(self, seconds: float) -> Any:
        """Take the lock of the vocabulary within `seconds`; returns whether it was taken."""

    def release(self) -> None:
        """Release the lock."""

    def close(self) -> Any:
        """As Transport.close."""


class OpaFlows:
    """The engine `opa`: the methods of ClientEngine, as flows."""

    name = "opa"

    def __init__(self, driver: IODriver, settings: Settings) -> None:
        self._io = driver
        timeout = settings["timeout"]
        self._resilience = resilience = Resilience(
            timeout=timeout,
            total=settings["total"] or sum(timeout),
            retries=Retries(most=settings["retries"]),
            breaker=Breaker(settings["breaker_failures"], settings["breaker_seconds"]),
        )
        cache_size = settings["cache_size"]
        self._cache = Cache(cache_size, settings["cache_ttl"]) if cache_size else None
        self._cache_refresh = settings["cache_refresh"] if cache_size else math.inf
        self._system: str | None = settings["system"]
        if self._system is not None:
            protocol.check_system(self._system)
        self._max_staleness: float | None = settings["max_staleness"]
        self._concurrency: int = settings["concurrency"]
        self._active: ActiveSystem | None = None
        self._state: str | None = None
        self._timed = False
        """True if rows of the state hold for a time: then no answer is kept, since it may end at any moment."""
        self._checked_at = 0.0
        self._heard_at = float("-inf")
        self._status_at = float("-inf")
        self._paces = {
            kind: Pace(settings["chunk_size"], min(resilience.timeout[1], resilience.total))
            for kind in ("allow", "decide", "visible")
        }

    @property
    def circuit(self) -> str:
        return self._resilience.breaker.state

    def close(self) -> Any:
        return self._io.close()

    # --- vocabulary and revisions ---

    def active_system(self) -> ActiveSystem | Flow[ActiveSystem]:
        """The vocabulary of the active policy; raises DecisionUnavailable if there is none or it is too old."""
        active = self._active
        # The usual case, which asks OPA nothing.
        if active is None or time.monotonic() - self._checked_at >= self._refresh() or self._may_be_stale():
            return self._read_active()
        return active

    def _read_active(self) -> Flow[ActiveSystem]:
        active = yield from self._revalidate(self._active, at_most_every=self._refresh())
        if self._may_be_stale():
            yield from self._check_age()
        return active

    def _refresh(self) -> float:
        """Seconds for which the vocabulary is used without checking the revisions."""
        return min(self._cache_refresh, REFRESH_SECONDS)

    def newer(self, active: ActiveSystem) -> Flow[ActiveSystem]:
        """The vocabulary after another check; `active` itself if it is current, or was checked a moment ago."""
        return (yield from self._revalidate(active, at_most_every=RECHECK_SECONDS))

    def _revalidate(self, active: ActiveSystem | None, *, at_most_every: float) -> Flow[ActiveSystem]:
        if active is not None and time.monotonic() - self._checked_at < at_most_every:
            return self._active or active
        # Waiting for the check of another thread counts against this call's deadline.
        deadline = self._deadline()
        if not (yield partial(self._io.acquire, max(deadline - self._resilience.clock(), 0.0))):
            raise DecisionUnavailable(f"OPA did not answer within {self._resilience.total:g} seconds")
        try:
            active = self._active
            if active is not None and time.monotonic() - self._checked_at < at_most_every:
                return active  # another thread has checked meanwhile
            if active is not None:
                revision = yield from self._send(protocol.policy_revision(active.system))
                active = active if revision is not None and revision == active.revision else None
            if active is None:
                active = yield from self._fetch()
            state = yield from self._send(protocol.state_revision(active))
            timed = state is None and not active.sharded
            if timed:
                state = yield from self._send(protocol.windowed_revision(active.vocabulary.system))
            elif state is not None and self._cache is not None and active.sharded:
                timed = yield from self._send(protocol.windowed(active))
            if state is None:
                # A policy without a state would deny everything: an error, not a decision.
                raise protocol.no_bundle(active.vocabulary.system, "state")
            self._log_change(active, state)
            self._active, self._state, self._timed = active, state, timed
            self._checked_at = time.monotonic()
            return active
        finally:
            self._io.release()

    def _log_change(self, active: ActiveSystem, state: str) -> None:
        if self._active is None or self._active.revision != active.revision or self._state != state:
            LOG.info("system %s: policy revision %s, state revision %s", active.system, active.revision, state)
            if self._cache is not None:
                self._cache.clear()

    def _fetch(self) -> Flow[ActiveSystem]:
        if self._system is not None:
            return (yield from self._send(protocol.program(self._system)))
        systems = yield from self._send(protocol.programs())
        if not systems:
            raise protocol.no_bundle(None)
        if len(systems) > 1:
            names = ", ".join(f"`{name}`" for name in sorted(systems))
            raise UsageError(f"OPA has {len(systems)} systems, {names}: say which, as in Client(system=…)")
        (active,) = systems.values()
        return active

    # --- staleness of bundles ---

    def _may_be_stale(self) -> bool:
        limit = self._max_staleness
        return limit is not None and time.monotonic() - self._heard_at > limit

    def _check_age(self) -> Flow[None]:
        """Raise DecisionUnavailable if OPA has not heard from its bundle server for too long."""
        if time.monotonic() - self._status_at >= STATUS_SECONDS:
            try:
                last_heard = yield from self._send(protocol.status())
            except DecisionError as error:
                raise DecisionUnavailable(
                    f"max_staleness is set, and OPA does not tell how old its bundles are: {error}; "
                    "its configuration needs `status`, as in `status: {prometheus: true}`"
                ) from error
            # OPA reports wall-clock time; convert it, since the wall clock may be set later.
            self._heard_at = time.monotonic() - (time.time() - min(last_heard.values(), default=0.0))
            self._status_at = time.monotonic()
        if self._may_be_stale():
            age = time.monotonic() - self._heard_at
            raise DecisionUnavailable(
                f"what OPA knows is too old: it has not heard from its bundle server for {age:.0f} seconds, "
                f"and max_staleness is {self._max_staleness:g}"
            )

    # --- answers ---

    def allow(self, request: Request) -> Flow[bool]:
        active = yield from self._active_or_read()
        call = partial(protocol.allow, active.system, request)
        return (yield from self._through_cache(active, "allow", request, call))

    def decide(self, request: Request) -> Flow[Decision]:
        active = yield from self._active_or_read()
        call = partial(protocol.decision, active.system, request)
        return (yield from self._through_cache(active, "decide", request, call))

    def _through_cache(self, active: ActiveSystem, kind: str, request: Request, call: Callable[[], Call[T]]) -> Flow[T]:
        if self._cache is None or self._timed:
            return (yield from self._send(call()))
        key = self._key(active, kind, request_key(request))
        answer: T | None = self._cache.get(key)
        if answer is None:
            answer = yield from self._send(call())
            self._cache.put(key, answer)
        else:
            note_cached()
        return answer

    def _key(self, active: ActiveSystem, kind: str, request: Key) -> Key:
        # The revisions were read before the request was sent: an answer is at least as new as its key.
        return active.revision, self._state, kind, request

    def allow_many(
        self, requests: Sequence[Request], shapes: Sequence[OperationShape], *, few: bool = False
    ) -> Flow[list[bool]]:
        """Return whether each request is allowed, by position; `few` prefers one mixed call to a call for each operation."""
        active = yield from self._active_or_read()

        def flows_for(positions: Sequence[int], set_answer: Callable[[int, bool], None]) -> Iterator[Flow[None]]:
            selected = [requests[index] for index in positions]
            plans = plan.batches(
                selected, [shapes[index] for index in positions], active, self._paces["allow"].size, few=few
            )
            for number, batch in enumerate(plans):
                asked = [positions[index] for index in batch.positions]
                yield self._chunk("allow", batch.call, asked, set_answer, first=number == 0)

        return (yield from self._each_once(active, "allow", requests, flows_for))

    def allow_together(self, requests: Sequence[Request]) -> Flow[list[bool]]:
        """Return whether each of several callers' checks is allowed; their names were checked."""
        vocabulary = (yield from self._active_or_read()).vocabulary
        # The vocabulary may have been renewed since, without one of these operations.
        shapes = [vocabulary.check_operation(request.resource.type, request.action) for request in requests]
        return (yield from self.allow_many(requests, shapes, few=True))

    def decide_many(self, requests: Sequence[Request]) -> Flow[list[Decision]]:
        return self._one_by_one("decide", protocol.explained, requests)

    def applied(self, requests: Sequence[Request]) -> Flow[list[AppliedFilter]]:
        return self._one_by_one("applied", protocol.applied, requests)

    def _one_by_one(
        self, kind: str, call: Callable[[str, Sequence[Request]], Call[list[T]]], requests: Sequence[Request]
    ) -> Flow[list[T]]:
        active = yield from self._active_or_read()

        def flows_for(positions: Sequence[int], set_answer: Callable[[int, T], None]) -> Iterator[Flow[None]]:
            for start, end in plan.cut(len(positions), self._paces["decide"].size):
                chunk = positions[start:end]
                asked = call(active.system, [requests[index] for index in chunk])
                yield self._chunk("decide", asked, chunk, set_answer, first=start == 0)

        return (yield from self._each_once(active, kind, requests, flows_for))

    def visible(self, request: Request, items: Sequence[Entity]) -> Flow[list[int]]:
        active = yield from self._active_or_read()
        positions_of: dict[Entity, list[int]] = {}
        for index, item in enumerate(items):
            positions_of.setdefault(item, []).append(index)
        distinct = list(positions_of)
        allowed = yield from self._positions(plan.listing(request, distinct, active, self._paces["visible"].size))
        return sorted(position for index in allowed for position in positions_of[distinct[index]])

    def _positions(self, calls: Iterable[tuple[int, int, Call[list[int]]]]) -> Flow[list[int]]:
        """The positions of what is allowed, of calls with the positions of their first item and of the next call's."""
        allowed: list[int] = []

        def chunk(start: int, end: int, call: Call[list[int]]) -> Flow[None]:
            found = yield from self._paced("visible", end - start, call, first=start == 0)
            allowed.extend(start + index for index in found)

        yield from self._run_flows(chunk(*planned) for planned in calls)
        return allowed

    def _each_once(
        self,
        active: ActiveSystem,
        kind: str,
        requests: Sequence[Request],
        flows_for: Callable[[Sequence[int], Callable[[int, T], None]], Iterable[Flow[None]]],
    ) -> Flow[list[T]]:
        """The answers by position: from the cache, or asked once for each distinct request."""
        cache = None if self._timed else self._cache
        answers: list[Any] = [None] * len(requests)
        first_of: dict[Key, int] = {}
        repeated: list[tuple[int, int]] = []
        keys: dict[int, Key] = {}
        for index, request in enumerate(requests):
            key = request_key(request)
            first_index = first_of.setdefault(key, index)
            if first_index != index:
                repeated.append((index, first_index))
            elif cache is not None:
                keys[index] = self._key(active, kind, key)
                answers[index] = cache.get(keys[index])
        unanswered = [index for index in first_of.values() if answers[index] is None]
        if len(unanswered) < len(first_of):
            for index, first_index in [*((index, index) for index in first_of.values()), *repeated]:
                if answers[first_index] is not None:
                    note_cached(index)

        def set_answer(index: int, answer: T) -> None:
            answers[index] = answer
            if cache is not None:
                cache.put(keys[index], answer)

        yield from self._run_flows(flows_for(unanswered, set_answer))
        if (context := CURRENT.get()) is not None:
            context.deadline = None  # later exchanges of the same call get a new time budget
        for index, first_index in repeated:
            answers[index] = answers[first_index]
        return answers

    def _chunk(
        self,
        kind: str,
        call: Call[list[T]],
        positions: Sequence[int],
        set_answer: Callable[[int, T], None],
        *,
        first: bool,
    ) -> Flow[None]:
        answers = yield from self._paced(kind, len(positions), call, first=first)
        for index, answer in zip(positions, answers, strict=True):
            set_answer(index, answer)

    def _paced(self, kind: str, requests: int, call: Call[list[T]], *, first: bool) -> Flow[list[T]]:
        """The answer to a chunk of requests; how long it took decides how large the next one is."""
        began = time.monotonic()
        answers = yield from self._send(call, fresh=not first)
        self._paces[kind].answered(requests, time.monotonic() - began)
        return answers

    def _run_flows(self, flows: Iterable[Flow[None]]) -> Flow[None]:
        if self._concurrency == 1:
            for flow in flows:
                yield from flow
        else:
            yield partial(self._io.run_all, iter(flows), self._concurrency)

    # --- OPA itself ---

    def healthy(self) -> Flow[bool]:
        """Return whether OPA answers and all of its bundles are active; one attempt, whatever the state of the circuit."""
        timeout = self._resilience.timeout
        limits = Limits(*timeout, total=self._resilience.total)
        try:
            yield partial(self._io.get, protocol.HEALTH_PATH, limits)
        except DecisionError:
            return False
        return True

    def filter(self, request: Request) -> Flow[Filter]:
        """As ClientEngine.filter. Policy and state must be the same before and after OPA was asked."""
        from privtab.engines.index import Index
        from privtab.engines.rows import RowEngine
        from privtab.filters.concern import NO_ROWS, of_opa
        from privtab.filters.filter import Question

        for _ in range(FILTER_ATTEMPTS):
            active = yield from self._active_or_read()
            engine = RowEngine(active.program, Index(NO_ROWS))
            said = yield from self._send(protocol.concern(active.system, request))
            question = Question.of(engine, request, of_opa(said, active.system))
            answers = []
            for _, given in question.choices:
                answers.append((yield from self._positions(self._about(question, given, active))))
            if (context := CURRENT.get()) is not None:
                context.deadline = None  # as after all answers to one call
            now = yield from self.revision()
            # Where rows hold for a time, what concerns the caller may change with the same revision.
            again = (
                (yield from self._send(protocol.concern(active.system, request), fresh=True)) if said["end"] else said
            )
            if (now.policy, now.state, again) == (active.revision, question.concern.revision, said):
                return question.answered(answers)
            yield from self._revalidate(active, at_most_every=0.0)
        raise DecisionUnavailable("the policy or the state changed while a filter was made: ask again")

    def _about(
        self, question: Question, given: Mapping[str, Scalar], active: ActiveSystem
    ) -> Iterator[tuple[int, int, Call[list[int]]]]:
        """The calls about the examples of a filter, if each has these attributes."""
        size = self._paces["visible"].size
        if not given:
            yield from plan.listing(question.request, question.found.examples, active, size)
            return
        requests = list(question.requests(given))
        for start, end in plan.cut(len(requests), size):
            yield start, end, plan.one_by_one(active.system, requests[start:end])

    def revision(self) -> Flow[Revision]:
        system = self._system or (yield from self._active_or_read()).system
        name = (yield from self._send(protocol.system_name(system))) or system
        policy = yield from self._send(protocol.policy_revision(system))
        sharded = yield from self._send(protocol.layout(system))
        call = protocol.combined_revision(system) if sharded else protocol.own_state_revision(name)
        state = yield from self._send(call)
        if state is None and not sharded:
            state = yield from self._send(protocol.windowed_revision(name))
        return Revision(policy=policy, state=state)

    # --- private ---

    def _active_or_read(self) -> Flow[ActiveSystem]:
        return self._active or (yield from self._read_active())

    def _deadline(self) -> float:
        """The deadline of the caller's call, set at its first exchange."""
        context = CURRENT.get()
        if context is None:
            return self._resilience.deadline()
        if context.deadline is None:
            context.deadline = self._resilience.deadline()
        return context.deadline

    def _send(self, call: Call[T], *, fresh: bool = False) -> Flow[T]:
        """The answer to one exchange, within the caller's deadline; a further chunk (`fresh`) gets the full time again."""
        deadline = self._resilience.deadline() if fresh else self._deadline()
        io = self._io

        def answer(call: Call[U]) -> Flow[U]:
            exchange = partial(io.get, call.path) if call.body is None else partial(io.post, call.path, call.body)
            return call.read((yield from self._resilience.attempts(exchange, io.sleep, deadline)))

        try:
            try:
                return (yield from answer(call))
            except Undefined:
                if call.body is None:
                    raise
            # A restarted OPA activates its bundles one by one. Checking again raises if one is still missing;
            # otherwise the rule is defined by now.
            yield from self._revalidate(self._active, at_most_every=0.0)
            try:
                return (yield from answer(call))
            except Undefined:
                active = self._active
                if active is None or not active.sharded:
                    raise
            # The principals are active, so a shard is missing, or was until just now.
            if roots := (yield from answer(protocol.inactive(active.system, call.body))):
                raise protocol.no_shard(active.system, roots)
            return (yield from answer(call))
        except Undefined as error:
            raise PolicyError(str(error)) from None
