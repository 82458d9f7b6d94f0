"""Judge answers by the revisions that may have been active between sending and answering."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from load_watch import Latencies
from load_world import KINDS, Kind, World, number_of

from privtab import Decision, DecisionUnavailable

Caller: TypeAlias = Literal["Client", "eager Client", "AsyncClient", "Embedded"]
"""An eager Client has no circuit breaker: it sends requests while the restarted OPA has a policy but no state."""
CALLERS: tuple[Caller, ...] = ("Client", "eager Client", "AsyncClient", "Embedded")
Method: TypeAlias = Literal["check", "check_many", "check_many mixed", "decide", "visible"]
"""`check_many` has requests for one operation, sent in one HTTP request; mixed operations may need several."""
METHODS: tuple[Method, ...] = ("check", "check_many", "check_many mixed", "decide", "visible")
Phase: TypeAlias = Literal["between", "swap", "restart"]
PHASES: tuple[Phase, ...] = ("between", "swap", "restart")

KEPT_FAILURES = 20
"""Number of failures that are kept in full; all are counted."""
LATER = 0.4
"""Seconds after its end at which a call is judged, because the active bundles are known by then."""
KEPT_SECONDS = 30.0
"""Seconds after which activations are forgotten, except for the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call and its result; times are those of `time.monotonic`."""

    caller: Caller
    method: Method
    questions: Sequence[int]
    """Positions of requests, or the position of a listing."""
    began: float
    ended: float
    answer: bool | Sequence[bool] | Sequence[str] | Decision | Exception


class Track:
    """The numbered bundles of one kind: when each was published, and when it was seen active."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._put: list[float] = []
        self._seen: deque[tuple[int, float, float]] = deque()
        """Number, the last time at which it was not yet active, the first time at which it was."""
        self._asked = 0.0

    def put(self, number: int, at: float) -> None:
        """Record that a bundle is published from `at` on; numbers must be consecutive."""
        with self._lock:
            assert number == len(self._put)
            self._put.append(at)

    @property
    def known(self) -> bool:
        """Whether any bundle was seen active."""
        return bool(self._seen)

    def see(self, number: int, asked: float, heard: float) -> None:
        """Record that a bundle was active at some time from `asked` to `heard`; raises ValueError if an older one is back."""
        with self._lock:
            last = self._seen[-1][0] if self._seen else -1
            if number < last:
                raise ValueError(f"revision {number} is active after {last}")
            if number > last:
                # The change happened after the last poll that still showed the previous bundle.
                self._seen.append((number, self._asked if self._seen else asked, heard))
            self._asked = asked
            while len(self._seen) > 1 and self._seen[1][2] < heard - KEPT_SECONDS:
                self._seen.popleft()

    def between(self, began: float, ended: float) -> range:
        """The numbers that may have been active at some time from `began` to `ended`.

        They range from the last one seen active before `began` to the one that a poll after `ended` still showed.
        """
        with self._lock:
            oldest = next((number for number, _, heard in reversed(self._seen) if heard <= began), 0)
            newest = next((number for number, without, _ in reversed(self._seen) if without <= ended), oldest)
            if newest == self._seen[-1][0] and self._asked < ended:
                newest = bisect_left(self._put, ended) - 1  # no poll since then
            return range(oldest, newest + 1)

    def put_since(self, since: float, ended: float) -> range:
        """The numbers that were published at some time from `since` to `ended`."""
        with self._lock:
            return range(max(0, bisect_left(self._put, since) - 1), bisect_left(self._put, ended))

    def changed(self, began: float, ended: float) -> bool:
        """Whether a new bundle became active, or may have, between these times."""
        with self._lock:
            return any(without <= ended and heard >= began for _, without, heard in self._seen)

    @property
    def lags(self) -> list[float]:
        """Seconds from publishing to being seen active, for the last bundles."""
        with self._lock:
            return [heard - self._put[number] for number, _, heard in self._seen]

    @property
    def last(self) -> int:
        """The number that was published last."""
        with self._lock:
            return len(self._put) - 1


@dataclass(slots=True)
class Timeline:
    """When bundles changed, and when OPA was killed and restarted."""

    tracks: dict[Kind, Track] = field(default_factory=lambda: {kind: Track() for kind in KINDS})
    killed: float | None = None
    dead: float | None = None
    started: float | None = None
    """When OPA was started again."""
    back: float | None = None
    grace: float = 0.0
    """Seconds after `back` in which a circuit breaker may still be open."""

    def outage(self, began: float, ended: float) -> bool:
        """Whether a call overlaps the time in which OPA may be unreachable."""
        if self.killed is None or ended < self.killed:
            return False
        return self.back is None or began <= self.back + self.grace

    def impossible(self, began: float, ended: float) -> bool:
        """Whether no OPA was running from the beginning of a call to its end."""
        if self.dead is None or began <= self.dead:
            return False
        return self.started is None or ended < self.started

    def phase(self, began: float, ended: float) -> Phase:
        """The phase to which the latency of a call belongs."""
        if self.outage(began, ended):
            return "restart"
        return "swap" if any(track.changed(began, ended) for track in self.tracks.values()) else "between"


@dataclass(slots=True)
class Verdicts:
    """The results of all calls."""

    right: Counter[tuple[Caller, Method]] = field(default_factory=Counter)
    wrong: Counter[Caller] = field(default_factory=Counter)
    unavailable: Counter[Caller] = field(default_factory=Counter)
    failed: Counter[Caller] = field(default_factory=Counter)
    allows: int = 0
    answers: int = 0
    decisive: int = 0
    """Calls for which all candidate revisions agree, so that any other answer would have been found wrong."""
    failures: list[str] = field(default_factory=list)
    first_after: dict[Caller, float] = field(default_factory=dict)
    """By caller, seconds from the return of OPA to the first answer of a call that began after it."""

    @property
    def calls(self) -> int:
        """The number of all calls."""
        return sum(sum(counter.values()) for counter in (self.right, self.wrong, self.unavailable, self.failed))

    @property
    def bad(self) -> int:
        """The number of calls that fail the run."""
        return sum(self.wrong.values()) + sum(self.failed.values())


class Judge:
    """Judges calls a moment after their end, so that no caller waits for it."""

    def __init__(self, world: World, timeline: Timeline, *, embedded_age: float) -> None:
        self.world = world
        self.timeline = timeline
        self.verdicts = Verdicts()
        self.latencies = Latencies()
        self._embedded_age = embedded_age
        """Maximum age in seconds of the bundles behind an answer of an Embedded."""
        self._calls: deque[Call] = deque()
        self.tell = self._calls.append

    def work(self, stop: threading.Event) -> None:
        """Judge until stopped, then the rest."""
        while not stop.wait(0.05):
            self._judge_until(time.monotonic() - LATER)
        self._judge_until(float("inf"))

    def _judge_until(self, until: float) -> None:
        # Calls are added nearly in the order of their ends.
        while self._calls and self._calls[0].ended <= until:
            self.judge(self._calls.popleft())

    def judge(self, call: Call) -> None:
        """Judge and count a call; failures are kept."""
        phase = "between" if call.caller == "Embedded" else self.timeline.phase(call.began, call.ended)
        self.latencies.add(call.caller, phase, call.ended, call.ended - call.began, good=not _is_error(call.answer))
        verdicts = self.verdicts
        if isinstance(call.answer, Exception):
            self._judge_error(call, call.answer)
            return
        if call.caller != "Embedded" and self.timeline.impossible(call.began, call.ended):
            verdicts.wrong[call.caller] += 1
            self._remember(call, f"an answer, {call.answer!r}, while there was no OPA")
            return
        back = self.timeline.back
        if call.caller != "Embedded" and back is not None and call.began > back:
            verdicts.first_after.setdefault(call.caller, call.ended - back)
        fits = self._fits_any(call, call.answer)
        verdicts.answers += len(call.questions)
        if isinstance(call.answer, bool) and call.answer:
            verdicts.allows += 1
        if any(fits):
            verdicts.right[call.caller, call.method] += 1
            verdicts.decisive += all(fits)
        else:
            verdicts.wrong[call.caller] += 1
            self._remember(call, f"{_shown(call.answer)} fits none of the revisions in question, {self._named(call)}")

    def _judge_error(self, call: Call, error: Exception) -> None:
        expected = (
            isinstance(error, DecisionUnavailable)
            and call.caller != "Embedded"
            and self.timeline.outage(call.began, call.ended)
        )
        if expected:
            self.verdicts.unavailable[call.caller] += 1
        else:
            self.verdicts.failed[call.caller] += 1
            self._remember(call, f"{type(error).__name__}: {error}")

    def _candidates(self, call: Call) -> Iterator[tuple[int, int]]:
        policies, states = (self._range(call, kind) for kind in KINDS)
        return ((policy, state) for policy in policies for state in states)

    def _range(self, call: Call, kind: Kind) -> range:
        track = self.timeline.tracks[kind]
        if call.caller == "Embedded":
            return track.put_since(call.began - self._embedded_age, call.ended)
        return track.between(call.began, call.ended)

    def _fits_any(self, call: Call, answer: object) -> list[bool]:
        """For each candidate pair of revisions, whether the answer fits it."""
        if call.method != "check_many mixed" or not isinstance(answer, Sequence):
            return [self._fits(call, policy, state) for policy, state in self._candidates(call)]
        # Possibly several HTTP requests: judge each answer separately.
        variants = {self.world.variant(policy, state) for policy, state in self._candidates(call)}
        fits = [
            [answered is self.world.allowed(variant, question) for variant in variants]
            for question, answered in zip(call.questions, answer, strict=True)
        ]
        return [all(any(one) for one in fits), all(all(one) for one in fits)]

    def _fits(self, call: Call, policy: int, state: int) -> bool:
        """Whether the whole answer is that of these revisions."""
        variant = self.world.variant(policy, state)
        match call.answer:
            case Decision() as decision:
                if decision.revision is None or number_of(decision.revision) != policy:
                    return False
                return decision.allowed is self.world.allowed(variant, call.questions[0])
            case bool() as answer:
                return answer is self.world.allowed(variant, call.questions[0])
            case Exception():
                return False
            case answers if call.method == "visible":
                return tuple(answers) == self.world.visible(variant, call.questions[0])
            case answers:
                return list(answers) == [self.world.allowed(variant, question) for question in call.questions]

    def _named(self, call: Call) -> str:
        ranges = {kind: self._range(call, kind) for kind in KINDS}
        return ", ".join(f"{kind} {numbers[0]}..{numbers[-1]}" for kind, numbers in ranges.items() if numbers)

    def _remember(self, call: Call, what: str) -> None:
        if len(self.verdicts.failures) < KEPT_FAILURES:
            timeline = self.timeline
            since = "" if timeline.killed is None else f", {call.began - timeline.killed:.2f} s after the kill"
            back = "" if timeline.back is None else f", {call.began - timeline.back:.2f} s after the return"
            took = f"took {(call.ended - call.began) * 1e3:.0f} ms"
            self.verdicts.failures.append(f"{call.caller}.{call.method} ({took}{since}{back}): {what}")


def _is_error(answer: object) -> bool:
    return isinstance(answer, Exception)


def _shown(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 160 else text[:157] + "…"
