"""Whether an answer was right: the revisions that may have been active between sending and answering, and what they say."""

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
"""An eager Client has no circuit: it asks while OPA is coming back, with a policy and no state."""
CALLERS: tuple[Caller, ...] = ("Client", "eager Client", "AsyncClient", "Embedded")
Method: TypeAlias = Literal["check", "check_many", "check_many mixed", "decide", "visible"]
"""`check_many` asks for one operation and is one exchange; mixed operations may be several."""
METHODS: tuple[Method, ...] = ("check", "check_many", "check_many mixed", "decide", "visible")
Phase: TypeAlias = Literal["between", "swap", "restart"]
PHASES: tuple[Phase, ...] = ("between", "swap", "restart")

KEPT_FAILURES = 20
"""How many are told in full; all are counted."""
LATER = 0.4
"""Seconds after its end at which a call is judged: what was active meanwhile is known by then."""
KEPT_SECONDS = 30.0
"""What became active is forgotten after that, but for the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A question and what came of it; times as `time.monotonic` has them."""

    caller: Caller
    method: Method
    questions: Sequence[int]
    """Positions of requests, or the one of a listing."""
    began: float
    ended: float
    answer: bool | Sequence[bool] | Sequence[str] | Decision | Exception


class Track:
    """The numbered bundles of one kind: when each was put in place, and when it was seen to be active."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._put: list[float] = []
        self._seen: deque[tuple[int, float, float]] = deque()
        """Number, the last moment without it, the first one with it."""
        self._asked = 0.0

    def put(self, number: int, at: float) -> None:
        """From `at` on the bundle service may hand it out; numbers come in order."""
        with self._lock:
            assert number == len(self._put)
            self._put.append(at)

    @property
    def known(self) -> bool:
        """Whether any was seen."""
        return bool(self._seen)

    def see(self, number: int, asked: float, heard: float) -> None:
        """It was active at some moment between asking and hearing. ValueError: an older one is back."""
        with self._lock:
            last = self._seen[-1][0] if self._seen else -1
            if number < last:
                raise ValueError(f"revision {number} is active after {last}")
            if number > last:
                # The change came after the last look that still showed the one before.
                self._seen.append((number, self._asked if self._seen else asked, heard))
            self._asked = asked
            while len(self._seen) > 1 and self._seen[1][2] < heard - KEPT_SECONDS:
                self._seen.popleft()

    def between(self, began: float, ended: float) -> range:
        """The numbers that may have been active at a moment from `began` to `ended`, by what was seen before and after.

        None older than the one seen last before `began`; none newer than what a look after `ended` still showed.
        """
        with self._lock:
            oldest = next((number for number, _, heard in reversed(self._seen) if heard <= began), 0)
            newest = next((number for number, without, _ in reversed(self._seen) if without <= ended), oldest)
            if newest == self._seen[-1][0] and self._asked < ended:
                newest = bisect_left(self._put, ended) - 1  # nobody has looked since
            return range(oldest, newest + 1)

    def put_since(self, since: float, ended: float) -> range:
        """The numbers that were in place at a moment from `since` to `ended`."""
        with self._lock:
            return range(max(0, bisect_left(self._put, since) - 1), bisect_left(self._put, ended))

    def changed(self, began: float, ended: float) -> bool:
        """Whether a new one became active, or may have, between these moments."""
        with self._lock:
            return any(without <= ended and heard >= began for _, without, heard in self._seen)

    @property
    def lags(self) -> list[float]:
        """Seconds from being put in place to being seen active, of the last ones."""
        with self._lock:
            return [heard - self._put[number] for number, _, heard in self._seen]

    @property
    def last(self) -> int:
        """The number that was put in place last."""
        with self._lock:
            return len(self._put) - 1


@dataclass(slots=True)
class Timeline:
    """What happened to the bundles and to OPA."""

    tracks: dict[Kind, Track] = field(default_factory=lambda: {kind: Track() for kind in KINDS})
    killed: float | None = None
    dead: float | None = None
    started: float | None = None
    """When OPA was launched again."""
    back: float | None = None
    grace: float = 0.0
    """Seconds after `back` in which the circuit may still be open."""

    def outage(self, began: float, ended: float) -> bool:
        """Whether a call touches the time in which OPA may not be reached."""
        if self.killed is None or ended < self.killed:
            return False
        return self.back is None or began <= self.back + self.grace

    def impossible(self, began: float, ended: float) -> bool:
        """Whether there was no OPA from the beginning of a call to its end."""
        if self.dead is None or began <= self.dead:
            return False
        return self.started is None or ended < self.started

    def phase(self, began: float, ended: float) -> Phase:
        """Which latencies a call counts among."""
        if self.outage(began, ended):
            return "restart"
        return "swap" if any(track.changed(began, ended) for track in self.tracks.values()) else "between"


@dataclass(slots=True)
class Verdicts:
    """What came of all calls."""

    right: Counter[tuple[Caller, Method]] = field(default_factory=Counter)
    wrong: Counter[Caller] = field(default_factory=Counter)
    unavailable: Counter[Caller] = field(default_factory=Counter)
    failed: Counter[Caller] = field(default_factory=Counter)
    allows: int = 0
    answers: int = 0
    decisive: int = 0
    """Calls where all revisions in question say the same: any other answer would have been found wrong."""
    failures: list[str] = field(default_factory=list)
    first_after: dict[Caller, float] = field(default_factory=dict)
    """Seconds from the return of OPA to the end of a caller's first good answer of a call that began after it."""

    @property
    def calls(self) -> int:
        """All of them."""
        return sum(sum(counter.values()) for counter in (self.right, self.wrong, self.unavailable, self.failed))

    @property
    def bad(self) -> int:
        """Those that fail the run."""
        return sum(self.wrong.values()) + sum(self.failed.values())


class Judge:
    """Judges calls a moment after their end, so that nobody waits for it."""

    def __init__(self, world: World, timeline: Timeline, *, embedded_age: float) -> None:
        self.world = world
        self.timeline = timeline
        self.verdicts = Verdicts()
        self.latencies = Latencies()
        self._embedded_age = embedded_age
        """No answer of an Embedded is older."""
        self._calls: deque[Call] = deque()
        self.tell = self._calls.append

    def work(self, stop: threading.Event) -> None:
        """Judge until stopped, then the rest."""
        while not stop.wait(0.05):
            self._judge_until(time.monotonic() - LATER)
        self._judge_until(float("inf"))

    def _judge_until(self, until: float) -> None:
        # Callers add in the order of ending, nearly.
        while self._calls and self._calls[0].ended <= until:
            self.judge(self._calls.popleft())

    def judge(self, call: Call) -> None:
        """Count a call, and remember it where it fails the run."""
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
        """Whether the answer is theirs, for each of the revisions in question."""
        if call.method != "check_many mixed" or not isinstance(answer, Sequence):
            return [self._fits(call, policy, state) for policy, state in self._candidates(call)]
        # Several exchanges: each answer on its own.
        variants = {self.world.variant(policy, state) for policy, state in self._candidates(call)}
        fits = [
            [answered is self.world.allowed(variant, question) for variant in variants]
            for question, answered in zip(call.questions, answer, strict=True)
        ]
        return [all(any(one) for one in fits), all(all(one) for one in fits)]

    def _fits(self, call: Call, policy: int, state: int) -> bool:
        """Whether an answer is, as a whole, the one of these revisions."""
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
