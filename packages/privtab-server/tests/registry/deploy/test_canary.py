"""Canaries: who is one, and what their decisions are compared by."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from privtab.base import UsageError
from privtab_server.registry import Registry
from privtab_server.registry.deploy import DecisionCount, Feed, Fleet, RuleCount, Sidecar
from privtab_server.registry.deploy.canary import (
    CanaryCounts,
    CanaryPlan,
    Counts,
    compare,
    counts,
    observe,
    part,
    sides,
)
from privtab_server.registry.deploy.rollout import Rollout
from privtab_server.registry.nodes import Canary, Channel

DURING = Channel(
    channel="dev", system="shop", sequence=2, policy="old", state="s", canary=Canary(policy="new", share=0.1)
)


def sample(allowed: float, count: int, seed: int, undefined: float = 0.0) -> RuleCount:
    chance = random.Random(seed)
    draws = [chance.random() for _ in range(count)]
    empty = sum(draw < undefined for draw in draws)
    yes = sum(undefined <= draw < undefined + allowed for draw in draws)
    return RuleCount(allowed=yes, denied=count - yes - empty, undefined=empty)


def verdicts(found: Counts, tolerance: float = 0.02) -> dict[tuple[str, str], str]:
    return {(comparison.rule, comparison.of): comparison.verdict for comparison in compare(found, tolerance=tolerance)}


def test_a_rule_that_refuses_more_has_moved() -> None:
    found = {(True, "r"): sample(0.3, 300, 1), (False, "r"): sample(0.6, 3000, 2)}
    assert verdicts(found) == {("r", "allowed"): "moved"}
    assert (
        "allowed 2" in compare(found, tolerance=0.02)[0].says or "allowed 3" in compare(found, tolerance=0.02)[0].says
    )


def test_answers_that_are_left_off_are_compared_too() -> None:
    found = {(True, "r"): sample(0.6, 300, 1, undefined=0.2), (False, "r"): sample(0.8, 3000, 2)}
    assert verdicts(found)["r", "undefined"] == "moved"


def test_few_decisions_say_nothing() -> None:
    found = {
        (True, "r"): RuleCount(denied=19),
        (False, "r"): RuleCount(allowed=3000),
        (False, "q"): RuleCount(allowed=9),
    }
    assert set(verdicts(found).values()) == {"few"}


def test_changes_within_the_tolerance_are_not_moves() -> None:
    found = {
        (True, "r"): RuleCount(allowed=51_000, denied=49_000),
        (False, "r"): RuleCount(allowed=500_000, denied=500_000),
    }
    assert verdicts(found, tolerance=0.02)["r", "allowed"] == "alike"
    assert verdicts(found, tolerance=0.005)["r", "allowed"] == "moved"


def test_chance_alone_moves_a_rule_once_in_a_thousand_comparisons() -> None:
    moved = 0
    for seed in range(400):
        found: Counts = {}
        for rule in range(10):
            found[True, str(rule)] = sample(0.5, 200, seed * 100 + rule)
            found[False, str(rule)] = sample(0.5, 400, seed * 100 + rule + 50)
        moved += any(comparison.verdict == "moved" for comparison in compare(found, tolerance=0.0))
    assert moved <= 4


def test_only_the_two_revisions_count() -> None:
    decision_counts = (
        DecisionCount(revision="new", rule="r", allowed=5),
        DecisionCount(revision="old", rule="r", denied=7),
        DecisionCount(revision="older", rule="r", allowed=100),
    )
    found = counts(decision_counts, "new", "old")
    assert found == {(True, "r"): RuleCount(allowed=5), (False, "r"): RuleCount(denied=7)}


@pytest.mark.parametrize(
    ("text", "share", "labels"),
    [
        ("10%", 0.1, {}),
        ("0.25", 0.25, {}),
        ("zone=a", 1.0, {"zone": "a"}),
        ("app=web, zone=b,5%", 0.05, {"app": "web", "zone": "b"}),
    ],
)
def test_a_part_of_the_fleet(text: str, share: float, labels: dict[str, str]) -> None:
    found = part(text)
    assert found.share == pytest.approx(share)
    assert found.labels == labels


@pytest.mark.parametrize("text", ["", "0%", "150%", "-1", "half", "=a", "a=", "10%,20%"])
def test_values_that_are_no_share(text: str) -> None:
    with pytest.raises(UsageError, match="--canary"):
        part(text)


def trial(**more: object) -> CanaryPlan:
    settings = {"part": part("10%"), "seconds": 0.0, "decisions": 100, "tolerance": 0.02, "quiet_ok": False, **more}
    return CanaryPlan(**settings)  # type: ignore[arg-type]


def growing(canary: RuleCount, others: RuleCount) -> Callable[[], Fleet]:
    """A fleet that has decided so much since the canary began."""
    return lambda: tried("t1", canary, others)


def decision_count(revision: str, count: RuleCount) -> DecisionCount:
    return DecisionCount(
        revision=revision, rule="r", allowed=count.allowed, denied=count.denied, undefined=count.undefined
    )


def test_a_trial_ends_good_bad_or_without_a_word() -> None:
    good = observe(growing(sample(0.5, 200, 1), sample(0.5, 900, 2)), DURING, trial(), None)
    assert (good.outcome, good.good) == ("alike", True)
    bad = observe(growing(sample(0.1, 200, 1), sample(0.5, 900, 2)), DURING, trial(seconds=60, decisions=10**6), None)
    assert (bad.outcome, bad.good) == ("moved", False)
    assert bad.says.startswith("1 of 1 moved: r: allowed")
    assert bad.json()["compared"][0]["verdict"] == "moved"
    quiet = observe(growing(RuleCount(allowed=3), RuleCount(allowed=900)), DURING, trial(), None)
    assert (quiet.outcome, quiet.good) == ("quiet", False)
    assert observe(growing(RuleCount(), RuleCount()), DURING, trial(quiet_ok=True), None).good


def test_sides_are_distinguished_by_the_policy_or_else_by_the_state() -> None:
    assert sides(DURING) == ("new", "old")
    state = Channel(channel="dev", system="shop", policy="p", state="s", canary=Canary(policy="p", state="t"))
    assert sides(state) == ("t", "s")
    with pytest.raises(UsageError, match="only shards"):
        sides(Channel(channel="dev", system="shop", policy="p", canary=Canary(shards={"a": "b"})))


@pytest.mark.parametrize(("text", "words"), [("10%", "10 %"), ("zone=a", "zone=a"), ("zone=a,2.5%", "2.5 % of zone=a")])
def test_a_part_in_words(text: str, words: str) -> None:
    assert trial(part=part(text)).words == words


def tried(since: str, canary: RuleCount, others: RuleCount, started: str = "1") -> Fleet:
    decision_counts = (decision_count("new", canary), decision_count("old", others))
    late = (decision_count("old", RuleCount(denied=9999)),)
    return Fleet(decision_counts=late, canaries_in_progress={"dev/shop": (since, decision_counts)}, started=started)


def test_late_reports_of_decisions_before_the_canary_do_not_count() -> None:
    counted = CanaryCounts(DURING)
    counted.now(tried("t1", RuleCount(), RuleCount()))
    found = counted.now(tried("t1", RuleCount(allowed=5), RuleCount(allowed=7)))
    assert found == {(True, "r"): RuleCount(allowed=5), (False, "r"): RuleCount(allowed=7)}


def test_a_server_that_does_not_know_of_the_canary_yet_counts_nothing() -> None:
    counted = CanaryCounts(DURING)
    assert counted.now(Fleet(decision_counts=(decision_count("new", RuleCount(allowed=9)),))) == {}
    assert counted.now(tried("t1", RuleCount(allowed=5), RuleCount())) != {}


def test_a_server_that_is_started_anew_goes_on_counting() -> None:
    counted = CanaryCounts(DURING)
    counted.now(tried("t1", RuleCount(), RuleCount()))
    counted.now(tried("t1", RuleCount(allowed=5, denied=5), RuleCount(allowed=50, denied=50)))
    # More than before, and yet from nothing: no difference of the two would be one of what was decided.
    found = counted.now(tried("t2", RuleCount(allowed=4, denied=20), RuleCount(allowed=20, denied=100), started="2"))
    assert found[True, "r"] == RuleCount(allowed=9, denied=25)
    assert found[False, "r"] == RuleCount(allowed=70, denied=150)
    found = counted.now(tried("t2", RuleCount(allowed=4, denied=21), RuleCount(allowed=20, denied=100), started="2"))
    assert found[True, "r"] == RuleCount(allowed=9, denied=26)


def test_a_canary_of_a_state_needs_one_before() -> None:
    with pytest.raises(UsageError, match="one that ran before"):
        sides(Channel(channel="dev", system="shop", policy="p", canary=Canary(policy="p", state="t")))


@pytest.mark.parametrize(("zones", "alone"), [("bb", 2), ("b", 1), ("ab", 0), ("", 0)])
def test_a_canary_of_all_sidecars_has_no_baseline(tmp_path: Path, zones: str, alone: int) -> None:
    feed = Feed(channel="dev", system="shop", kind="policy", holds="old")
    sidecars = [Sidecar(id=f"{at}", labels={"zone": zone}, feeds=(feed,)) for at, zone in enumerate(zones)]
    long_ago = Sidecar(id="x", feeds=(feed,), seen=datetime(2001, 1, 1, tzinfo=UTC))
    elsewhere = Sidecar(id="y", places=("prod/shop",))
    rollout = Rollout(
        registry=Registry.open(str(tmp_path)),
        channel="dev",
        system="shop",
        read=lambda: Fleet(sidecars=(*sidecars, long_ago, elsewhere)),
        follow=lambda looks, _: list(looks)[-1],
    )
    assert rollout.count_if_all_in_canary(replace(DURING, canary=Canary(policy="new", labels={"zone": "b"}))) == alone
