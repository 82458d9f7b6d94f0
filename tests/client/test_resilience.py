"""Deadlines, retries and the circuit breaker, on a clock that the test sets."""

from __future__ import annotations

from typing import Any

import pytest

from privtab import DecisionUnavailable, PolicyError
from privtab.client._engine import run
from privtab.client._resilience import LONGEST_OPEN, Breaker, Resilience, Retries
from privtab.client._transport import Limits, total


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Opa:
    """Answers as told; each exchange takes a while."""

    def __init__(self, clock: Clock, *answers: Any, seconds: float = 0.0) -> None:
        self.clock, self.answers, self.seconds = clock, list(answers), seconds
        self.limits_used: list[Limits] = []

    def __call__(self, limits: Limits) -> bytes:
        self.limits_used.append(limits)
        self.clock.sleep(min(self.seconds, limits.total))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, bytes)
        return answer


def send(clock: Clock, opa: Opa, breaker: Breaker | None = None, *, most: int = 2, time_: float = 6.0) -> bytes:
    retries = Retries(most=most)
    breaker = breaker or Breaker(0, 1.0, clock)
    resilience = Resilience(timeout=(1.0, 5.0), total=time_, retries=retries, breaker=breaker, clock=clock)
    return run(resilience.attempts(opa, clock.sleep, resilience.deadline()))


def test_a_failure_that_passes_is_not_noticed() -> None:
    clock = Clock()
    opa = Opa(clock, DecisionUnavailable("reset"), DecisionUnavailable("503"), b"yes")
    assert send(clock, opa) == b"yes"
    assert len(opa.limits_used) == 3
    assert clock.now - 100 <= 0.05 + 0.1


def test_tries_are_bounded_and_the_last_error_is_raised() -> None:
    clock = Clock()
    opa = Opa(clock, DecisionUnavailable("first"), DecisionUnavailable("second"), DecisionUnavailable("third"))
    with pytest.raises(DecisionUnavailable, match="third"):
        send(clock, opa)
    assert len(opa.limits_used) == 3


@pytest.mark.parametrize("error", [PolicyError("400"), DecisionUnavailable("certificate", retry=False)])
def test_errors_that_would_repeat_are_not_retried(error: Exception) -> None:
    clock = Clock()
    opa = Opa(clock, error)
    with pytest.raises(type(error)):
        send(clock, opa)
    assert len(opa.limits_used) == 1


@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.5, 9.0])
def test_the_budget_holds_however_many_tries_are_left(seconds: float) -> None:
    clock = Clock()
    opa = Opa(clock, DecisionUnavailable("slow"), seconds=seconds)
    with pytest.raises(DecisionUnavailable):
        send(clock, opa, most=1000, time_=3.0)
    assert clock.now - 100 <= 3.0 + 1e-9
    assert all(total(limits) <= 3.0 for limits in opa.limits_used)
    left = [total(limits) for limits in opa.limits_used]
    assert left == sorted(left, reverse=True)


def test_retries_wait_for_retry_after() -> None:
    clock = Clock()
    opa = Opa(clock, DecisionUnavailable("429", retry_after=2.0), b"yes")
    assert send(clock, opa) == b"yes"
    assert clock.now - 100 >= 2.0
    patient = Opa(clock, DecisionUnavailable("429", retry_after=60.0), b"yes")
    with pytest.raises(DecisionUnavailable, match="429"):
        send(clock, patient)
    assert len(patient.limits_used) == 1


def test_pauses_grow_are_spread_and_have_an_end() -> None:
    retries = Retries()
    drawn = {tried: [retries.pause(tried, DecisionUnavailable("x")) for _ in range(300)] for tried in (0, 2, 20)}
    assert 0 <= min(drawn[0]) < max(drawn[0]) <= 0.05
    assert 0.05 < max(drawn[2]) <= 0.2
    assert 0.5 < max(drawn[20]) <= 1.0


def test_the_circuit_opens_lets_one_through_and_closes() -> None:
    clock = Clock()
    breaker = Breaker(3, 1.0, clock)
    down = Opa(clock, DecisionUnavailable("refused"))
    for _ in range(3):
        assert breaker.state == "closed"
        with pytest.raises(DecisionUnavailable, match="refused"):
            send(clock, down, breaker, most=0)
    assert breaker.state == "open"
    with pytest.raises(DecisionUnavailable, match="circuit is open after 3 failures"):
        send(clock, down, breaker)
    assert len(down.limits_used) == 3
    clock.now += 1.0
    assert breaker.state == "half-open"
    breaker.before()
    with pytest.raises(DecisionUnavailable, match="one call is trying"):
        breaker.before()
    breaker.succeeded()
    assert breaker.state == "closed"
    assert send(clock, Opa(clock, b"yes"), breaker) == b"yes"


def test_a_probe_that_fails_opens_for_longer_but_not_for_ever() -> None:
    clock = Clock()
    breaker = Breaker(1, 1.0, clock)
    breaker.failed(DecisionUnavailable("x"))
    for wait in (1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_OPEN, LONGEST_OPEN):
        clock.now += wait * 0.99
        assert breaker.state == "open"
        clock.now += wait * 0.011
        breaker.before()
        breaker.failed(DecisionUnavailable("x"))


def test_a_probe_that_is_given_up_lets_the_next_one_through() -> None:
    clock = Clock()
    breaker = Breaker(1, 1.0, clock)
    breaker.failed(DecisionUnavailable("x"))
    clock.now += 1.0
    with pytest.raises(KeyboardInterrupt):
        send(clock, Opa(clock, KeyboardInterrupt()), breaker)
    assert send(clock, Opa(clock, b"yes"), breaker) == b"yes"


def test_a_probe_that_has_no_time_left_lets_the_next_one_through() -> None:
    clock = Clock()
    breaker = Breaker(1, 1.0, clock)
    breaker.failed(DecisionUnavailable("x"))
    clock.now += 1.0
    with pytest.raises(DecisionUnavailable, match="within"):
        send(clock, Opa(clock, b"yes"), breaker, time_=0.0)
    assert send(clock, Opa(clock, b"yes"), breaker) == b"yes"


def test_an_answer_that_is_no_decision_still_shows_that_opa_is_there() -> None:
    clock = Clock()
    breaker = Breaker(2, 1.0, clock)
    breaker.failed(DecisionUnavailable("x"))
    with pytest.raises(PolicyError):
        send(clock, Opa(clock, PolicyError("400")), breaker)
    breaker.failed(DecisionUnavailable("x"))
    assert breaker.state == "closed"
