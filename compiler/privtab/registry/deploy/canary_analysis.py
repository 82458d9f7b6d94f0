"""Observe the decisions of a canary."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from privtab.errors import UsageError
from privtab.registry.deploy.canary import Counts, RuleComparison, added, asked, compare, counts, since
from privtab.registry.nodes import Canary, Channel

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.registry.deploy.nodes import Fleet
    from privtab.registry.deploy.watch import Reader

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
            "compared": [one.json() for one in self.compared],
        }


class CanaryCounts:
    """Counts the decisions of a canary and of the others since it began.

    Logs arrive late, so the server counts decisions by the time they were made. An older server counts by arrival.
    """

    def __init__(self, during: Channel, fleet: Fleet) -> None:
        self._place = f"{during.channel}/{during.system}"
        self._sides = sides(during)
        self._start: Counts = {} if self._place in fleet.trials else self._all(fleet)
        self._since = self._began(fleet)
        self._before: Counts = {}
        self._found: Counts = {}

    def now(self, fleet: Fleet) -> Counts:
        """The counts so far."""
        began = self._began(fleet)
        if began != self._since:
            # A restarted server counts from zero; keep the earlier counts.
            self._since, self._before, self._start = began, self._found, {}
        self._found = added(self._before, since(self._all(fleet), self._start))
        return self._found

    def _began(self, fleet: Fleet) -> tuple[str, str]:
        return fleet.started, fleet.trials.get(self._place, ("", ()))[0]

    def _all(self, fleet: Fleet) -> Counts:
        trial = fleet.trials.get(self._place)
        return counts(fleet.tallies if trial is None else trial[1], *self._sides)


def observe(read: Reader, during: Channel, trial: CanaryPlan, console: Console | None) -> CanaryOutcome:
    """Count decisions until there are enough or time is up, then compare them. Ends early if a rule has clearly moved."""
    counted = CanaryCounts(during, read())
    begun = time.monotonic()
    while True:
        found = counted.now(read())
        seconds = time.monotonic() - begun
        mine, theirs = asked(found, canary=True), asked(found, canary=False)
        if mine >= trial.decisions <= theirs or seconds >= trial.seconds:
            break
        if any(one.verdict == "moved" for one in compare(found, tolerance=trial.tolerance, rate=CERTAIN)):
            break
        if console is not None and console.is_terminal:
            console.print(f"canary: {mine:,} decisions beside {theirs:,} of the others ({seconds:.0f} s)", end="\r")
        time.sleep(EVERY)
    compared = compare(found, tolerance=trial.tolerance)
    moved = [one for one in compared if one.verdict == "moved"]
    told = sum(one.verdict == "alike" for one in compared)
    outcome: Outcome = "moved" if moved else "alike" if told else "quiet"
    if moved:
        says = f"{len(moved)} of {len(compared)} moved: {moved[0].says}"
    elif told:
        says = f"{mine:,} decisions beside {theirs:,}: nothing moved by more than {trial.tolerance:.1%}"
    else:
        says = f"{mine:,} decisions beside {theirs:,} in {seconds:.0f} s are too few to compare"
    return CanaryOutcome(
        outcome=outcome,
        good=outcome == "alike" or (outcome == "quiet" and trial.quiet_ok),
        says=says,
        seconds=seconds,
        canary=mine,
        others=theirs,
        compared=compared,
    )


def nothing_to_compare(everybody: int, quiet_ok: bool) -> CanaryOutcome:  # noqa: FBT001
    """The outcome of a canary with all sidecars in it, which leaves none to compare with."""
    says = f"all {everybody} sidecars are in that part" if everybody > 1 else "the only sidecar is in that part"
    return CanaryOutcome(
        outcome="quiet", good=quiet_ok, says=f"{says}: there are none to compare with", seconds=0.0, canary=0, others=0
    )


def sides(during: Channel) -> tuple[str, str]:
    """The revisions that distinguish both sides: their policies or, if these are equal, their states."""
    own = during.canary or Canary()
    if own.policy is not None and during.policy is not None and own.policy != during.policy:
        return own.policy, during.policy
    if own.state is not None and during.state is not None and own.state != during.state:
        return own.state, during.state
    if own.state is not None and during.state is None and not during.shards:
        raise UsageError("a canary of a state needs one that ran before: leave `--canary` off")
    raise UsageError(
        "a canary that changes only shards cannot be compared: decisions do not record shards; leave `--canary` off"
    )
