"""Observe the decisions of a canary."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from privtab.errors import UsageError
from privtab.registry.deploy.canary_analysis import (
    Counts,
    RuleComparison,
    added,
    compare,
    counts,
    decision_count,
    since,
)
from privtab.registry.nodes import Canary, Channel

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.registry.deploy.nodes import Fleet
    from privtab.registry.deploy.watch import FleetReader

EVERY = 0.5
"""Seconds between two readings. OPA sends its decision logs every few seconds."""
CERTAIN = 1e-6
"""The error rate for stopping early; low, since repeated tests find differences by chance."""

Outcome: TypeAlias = Literal["alike", "moved", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """Which sidecars go first, and how long their decisions are compared."""

    part: Canary
    seconds: float
    decisions: int
    """Decisions on each side with which the observation ends early."""
    tolerance: float
    quiet_ok: bool
    """Whether a canary with too few decisions to compare passes."""

    @property
    def words(self) -> str:
        """The part: `25 % of app=web`."""
        labels = ", ".join(f"{name}={value}" for name, value in sorted(self.part.labels.items()))
        share = [f"{self.part.share * 100:.4g} %"] if self.part.share < 1 else []
        parts = [*share, *([labels] if labels else [])]
        return " of ".join(parts) or "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOutcome:
    """The result of observing a canary."""

    outcome: Outcome
    good: bool
    says: str
    seconds: float
    canary: int
    """The number of the canary's decisions."""
    others: int
    compared: tuple[RuleComparison, ...] = ()

    def json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "outcome": self.outcome,
            "good": self.good,
            "says": self.says,
            "seconds": round(self.seconds, 3),
            "decisions": {"canary": self.canary, "others": self.others},
            "compared": [comparison.json() for comparison in self.compared],
        }


class CanaryCounts:
    """Counts the decisions of a canary and of the others since it began.

    Logs arrive late, so the server counts decisions by the time they were made. An older server counts by arrival.
    """

    def __init__(self, channel: Channel, fleet: Fleet) -> None:
        self._place = f"{channel.channel}/{channel.system}"
        self._sides = sides(channel)
        self._start: Counts = {} if self._place in fleet.canaries_in_progress else self._counts_in(fleet)
        self._since = self._start_times(fleet)
        self._before: Counts = {}
        self._found: Counts = {}

    def now(self, fleet: Fleet) -> Counts:
        """The counts so far."""
        began = self._start_times(fleet)
        if began != self._since:
            # A restarted server counts from zero; keep the earlier counts.
            self._since, self._before, self._start = began, self._found, {}
        self._found = added(self._before, since(self._counts_in(fleet), self._start))
        return self._found

    def _start_times(self, fleet: Fleet) -> tuple[str, str]:
        return fleet.started, fleet.canaries_in_progress.get(self._place, ("", ()))[0]

    def _counts_in(self, fleet: Fleet) -> Counts:
        trial = fleet.canaries_in_progress.get(self._place)
        return counts(fleet.decision_counts if trial is None else trial[1], *self._sides)


def observe(read: FleetReader, channel: Channel, plan: CanaryPlan, console: Console | None) -> CanaryOutcome:
    """Count decisions until there are enough or time is up, then compare them. Ends early if a rule has clearly moved."""
    counter = CanaryCounts(channel, read())
    started = time.monotonic()
    while True:
        found = counter.now(read())
        seconds = time.monotonic() - started
        of_canary, of_others = decision_count(found, canary=True), decision_count(found, canary=False)
        if of_canary >= plan.decisions <= of_others or seconds >= plan.seconds:
            break
        if any(comparison.verdict == "moved" for comparison in compare(found, tolerance=plan.tolerance, rate=CERTAIN)):
            break
        if console is not None and console.is_terminal:
            console.print(
                f"canary: {of_canary:,} decisions beside {of_others:,} of the others ({seconds:.0f} s)", end="\r"
            )
        time.sleep(EVERY)
    compared = compare(found, tolerance=plan.tolerance)
    moved = [comparison for comparison in compared if comparison.verdict == "moved"]
    alike = sum(comparison.verdict == "alike" for comparison in compared)
    outcome: Outcome = "moved" if moved else "alike" if alike else "quiet"
    if moved:
        says = f"{len(moved)} of {len(compared)} moved: {moved[0].says}"
    elif alike:
        says = f"{of_canary:,} decisions beside {of_others:,}: nothing moved by more than {plan.tolerance:.1%}"
    else:
        says = f"{of_canary:,} decisions beside {of_others:,} in {seconds:.0f} s are too few to compare"
    return CanaryOutcome(
        outcome=outcome,
        good=outcome == "alike" or (outcome == "quiet" and plan.quiet_ok),
        says=says,
        seconds=seconds,
        canary=of_canary,
        others=of_others,
        compared=compared,
    )


def nothing_to_compare(sidecar_count: int, quiet_ok: bool) -> CanaryOutcome:  # noqa: FBT001
    """The outcome of a canary with all sidecars in it, which leaves none to compare with."""
    says = f"all {sidecar_count} sidecars are in that part" if sidecar_count > 1 else "the only sidecar is in that part"
    return CanaryOutcome(
        outcome="quiet", good=quiet_ok, says=f"{says}: there are none to compare with", seconds=0.0, canary=0, others=0
    )


def sides(channel: Channel) -> tuple[str, str]:
    """The revisions that distinguish both sides: their policies or, if these are equal, their states."""
    canary = channel.canary or Canary()
    if canary.policy is not None and channel.policy is not None and canary.policy != channel.policy:
        return canary.policy, channel.policy
    if canary.state is not None and channel.state is not None and canary.state != channel.state:
        return canary.state, channel.state
    if canary.state is not None and channel.state is None and not channel.shards:
        raise UsageError("a canary of a state needs one that ran before: leave `--canary` off")
    raise UsageError(
        "a canary that changes only shards cannot be compared: decisions do not record shards; leave `--canary` off"
    )
