from __future__ import annotations

import json
import random
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import load
import load_callers
import pytest
from load_judge import Call, Caller, Judge, Method, Timeline
from load_run import Load, Settings
from load_watch import JUDGED_SECONDS, SERIES, Histogram, growth, held
from load_world import KINDS, World, revision_of

from privtab import Decision, DecisionUnavailable, PolicyError

NOW = 1_000.0


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def timeline() -> Timeline:
    """Policy 0 throughout. State 0, and state 1: put at 10 s, active between 10.3 and 10.4 s, looked for until 20 s."""
    timeline = Timeline()
    for kind in KINDS:
        timeline.tracks[kind].put(0, NOW - 1)
        timeline.tracks[kind].see(0, NOW - 0.5, NOW - 0.4)
    timeline.tracks["policy"].see(0, NOW + 20, NOW + 20)
    state = timeline.tracks["state"]
    state.put(1, NOW + 10)
    state.see(0, NOW + 10.3, NOW + 10.31)
    state.see(1, NOW + 10.39, NOW + 10.4)
    state.see(1, NOW + 20, NOW + 20)
    return timeline


@pytest.fixture
def judge(world: World, timeline: Timeline) -> Judge:
    return Judge(world, timeline, embedded_age=1.0)


def judged_counts(
    judge: Judge,
    answer: Any,
    began: float,
    ended: float,
    *,
    caller: Caller = "Client",
    method: Method = "check",
    questions: Sequence[int] = (0,),
) -> tuple[int, int, int, int]:
    """Right, wrong, unavailable and failed calls once this one is judged."""
    judge.judge(
        Call(caller=caller, method=method, questions=questions, began=NOW + began, ended=NOW + ended, answer=answer)
    )
    v = judge.verdicts
    return tuple(sum(c.values()) for c in (v.right, v.wrong, v.unavailable, v.failed))  # type: ignore[return-value]


def allowed(world: World, question: int, state: int) -> bool:
    return world.allowed(world.variant(0, state), question)


def differing(world: World, count: int = 1) -> list[int]:
    """Questions that states 0 and 1 answer differently: half of them yes to begin with."""
    found = [q for q in range(len(world.requests)) if allowed(world, q, 0) is not allowed(world, q, 1)]
    return sorted(found, key=lambda q: (random.Random(q).random(), q))[:count]


RIGHT, WRONG, UNAVAILABLE, FAILED = (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)


# --- the judge ---


@pytest.mark.slow
def test_states_and_policies_differ_enough_to_tell_them_apart(world: World) -> None:
    variant = world.variant(0, 0)
    for other in (world.variant(0, 1), world.variant(1, 0)):
        differ = sum(world.allowed(variant, q) is not world.allowed(other, q) for q in range(len(world.requests)))
        assert differ > len(world.requests) / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("began", "ended", "old", "new"),
    [
        (1, 1.1, RIGHT, WRONG),  # before it was put there
        (9.9, 10.1, RIGHT, WRONG),  # put there, but a look after the call still shows the old one
        (10.2, 10.35, RIGHT, RIGHT),  # it may have become active meanwhile
        (10.39, 10.6, RIGHT, RIGHT),  # it was not yet seen when the question was sent
        (10.41, 10.5, WRONG, RIGHT),  # it was seen before
    ],
)
def test_an_answer_has_to_fit_a_revision_that_may_have_been_active(
    world: World, judge: Judge, began: float, ended: float, old: object, new: object
) -> None:
    question = differing(world)[0]
    other = Judge(world, judge.timeline, embedded_age=1.0)
    assert judged_counts(judge, allowed(world, question, 0), began, ended, questions=(question,)) == old
    assert judged_counts(other, allowed(world, question, 1), began, ended, questions=(question,)) == new


@pytest.mark.slow
def test_a_batch_of_one_exchange_fits_one_revision_as_a_whole(world: World, judge: Judge) -> None:
    first, second = differing(world, 2)
    mixed = [allowed(world, first, 0), allowed(world, second, 1)]
    questions = (first, second)
    assert judged_counts(judge, mixed, 10.2, 10.6, method="check_many", questions=questions) == WRONG
    assert judged_counts(judge, mixed, 10.2, 10.6, method="check_many mixed", questions=questions) == (1, 1, 0, 0)


@pytest.mark.slow
def test_a_listing_is_compared_item_by_item(world: World, judge: Judge) -> None:
    at = next(at for at in range(len(world.listings)) if world.visible(world.variant(0, 0), at))
    seen = world.visible(world.variant(0, 0), at)
    assert judged_counts(judge, list(seen), 1, 1.1, method="visible", questions=(at,)) == RIGHT
    assert judged_counts(judge, list(seen[1:]), 1, 1.1, method="visible", questions=(at,)) == (1, 1, 0, 0)


@pytest.mark.slow
def test_a_decision_names_the_policy_that_was_active(world: World, judge: Judge) -> None:
    good, bad = (
        Decision(allowed=allowed(world, 0, 0), context={"revision": revision_of("policy", number)}) for number in (0, 1)
    )
    assert judged_counts(judge, good, 1, 1.1, method="decide") == RIGHT
    assert judged_counts(judge, bad, 1, 1.1, method="decide") == (1, 1, 0, 0)


@pytest.mark.slow
def test_no_decision_is_allowed_without_an_opa(world: World, judge: Judge) -> None:
    timeline = judge.timeline
    timeline.killed, timeline.dead, timeline.started = NOW + 4, NOW + 4.1, NOW + 6
    right = allowed(world, 0, 0)
    assert judged_counts(judge, right, 4.2, 4.3) == WRONG
    assert judged_counts(judge, right, 3.9, 4.05) == (1, 1, 0, 0)
    assert judged_counts(judge, right, 4.2, 4.3, caller="Embedded") == (2, 1, 0, 0)


@pytest.mark.slow
def test_only_an_outage_excuses_a_caller_without_an_answer(judge: Judge) -> None:
    timeline = judge.timeline
    timeline.killed, timeline.dead, timeline.started, timeline.back, timeline.grace = (
        NOW + s for s in (4, 4, 6, 7, -NOW + 1)
    )
    away = DecisionUnavailable("nobody")
    assert judged_counts(judge, away, 3, 3.5) == FAILED
    assert judged_counts(judge, away, 7.5, 7.6) == (0, 0, 1, 1)
    assert judged_counts(judge, away, 8.5, 8.6) == (0, 0, 1, 2)
    assert judged_counts(judge, away, 7.5, 7.6, caller="Embedded") == (0, 0, 1, 3)
    assert judged_counts(judge, PolicyError("nonsense"), 7.5, 7.6) == (0, 0, 1, 4)


@pytest.mark.slow
def test_embedded_may_be_late_but_not_for_long(world: World, judge: Judge) -> None:
    question = differing(world)[0]
    old = allowed(world, question, 0)
    assert judged_counts(judge, old, 10.9, 10.95, caller="Embedded", questions=(question,)) == RIGHT
    assert judged_counts(judge, old, 11.1, 11.2, caller="Embedded", questions=(question,)) == (1, 1, 0, 0)


def test_opa_never_goes_back_to_an_older_bundle(timeline: Timeline) -> None:
    with pytest.raises(ValueError, match="0 is active after 1"):
        timeline.tracks["state"].see(0, NOW + 21, NOW + 21)


# --- figures ---


def test_quantiles_are_as_those_of_all_values() -> None:
    values = sorted(random.Random(1).lognormvariate(-6, 1.5) for _ in range(5_000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999):
        exact = values[round(share * len(values)) - 1]
        assert exact * 0.98 <= histogram.quantile(share) <= exact * 1.04
    assert histogram.quantile(1) == values[-1]
    assert sum(histogram.coarse((0.001, 0.01))) == len(values)


def noisy(grows: float, seconds: float) -> list[tuple[float, float]]:
    chance = random.Random(7)
    return [(t / 2, 60 + grows * t / 2 + chance.gauss(0, 3) + 40 * (t % 50 == 0)) for t in range(int(seconds * 2))]


def test_a_leak_is_distinguished_from_noise() -> None:
    memory = SERIES[0]
    assert growth(memory, noisy(0.2, 60)).leaks
    assert not growth(memory, noisy(0.0, 60)).leaks
    short = growth(memory, noisy(2.0, JUDGED_SECONDS - 5))
    assert not short.judged
    assert not short.leaks


def test_sockets_and_threads_that_stay_are_seen(tmp_path: Path) -> None:
    before = held(None)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        grown = [after - was for after, was in zip(held(None), before, strict=True)]
    stop.set()
    for thread in threads:
        thread.join()
    assert grown[2] == 2
    assert grown[4] == 3


# --- runs ---


@pytest.mark.slow
def test_answers_stay_right_while_bundles_change_and_opa_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--threads", "4", "--eager", "0", "--tasks", "4", "--embedded", "1", "--down", "1.5", "--late", "0"]
    assert load.main(["--minutes", "0.2", *few, "--out", str(tmp_path)]) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "load.json").read_text())
    assert found["ok"]
    assert found["failures"] == []
    assert not found["wrong"]
    assert not found["failed"]
    assert {name.partition(".")[0] for name in found["right"]} == {"Client", "AsyncClient", "Embedded"}
    assert set(found["unavailable"]) == {"Client", "AsyncClient"}
    assert set(found["first_answer_after_restart"]) == {"Client", "AsyncClient"}
    assert min(found["swaps"].values()) >= 6
    assert found["decisive"] > 0.5
    picture = ET.parse(tmp_path / "load.svg").getroot()  # noqa: S314  (written a moment ago)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) >= 8


@pytest.mark.long
def test_wrong_answers_fail_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = load_callers._ask
    chance = random.Random(3)

    def lies(client: Any, method: Method, question: Any) -> Any:
        answer = asks(client, method, question)
        return not answer if method == "check" and chance.random() < 0.02 else answer

    monkeypatch.setattr(load_callers, "_ask", lies)
    settings = Settings(minutes=0.05, threads=4, eager=0, tasks=0, embedded=0, restart=False, think=0.005)
    result = Load(settings, lambda _: None).run()
    assert result.judge.verdicts.wrong["Client"] > 0
    assert any("fits none" in failure for failure in result.failures)


@pytest.mark.long
def test_clients_that_are_not_closed_fail_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    stop = threading.Event()

    def lost(self: Load) -> list[threading.Thread]:
        threads.append(threading.Thread(target=stop.wait))
        threads[-1].start()
        return []

    monkeypatch.setattr(Load, "_callers", lost)
    began = time.monotonic()
    try:
        result = Load(Settings(minutes=0.01, restart=False), lambda _: None).run()
    finally:
        stop.set()
    threads[0].join()
    assert result.failures == ["1 threads stayed open after the clients were closed"]
    assert time.monotonic() - began < 60


@pytest.mark.long
def test_an_opa_that_comes_back_piece_by_piece_gives_no_answers() -> None:
    settings = Settings(minutes=0.1, threads=0, eager=4, tasks=0, embedded=0, down=0.5, think=0.005)
    result = Load(settings, lambda _: None).run()
    assert result.failures == []


@pytest.mark.long
def test_two_minutes() -> None:
    result = Load(Settings(minutes=2.0), lambda _: None).run()
    assert result.failures == []
    assert all(growth.judged for growth in result.growths)
    assert min(track.last for track in result.judge.timeline.tracks.values()) > 90
