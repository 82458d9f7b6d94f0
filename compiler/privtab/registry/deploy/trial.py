"""Watching a canary decide for a while."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from privtab.errors import UsageError
from privtab.registry.deploy.canary import Compared, Counts, asked, compare, counts, since
from privtab.registry.nodes import Canary, Channel

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.registry.deploy.watch import Reader

EVERY = 0.5
"""Seconds between two looks. OPA sends its decisions every few seconds."""
CERTAIN = 1e-6
"""The error rate of the looks before the end: who looks often finds something by chance."""

Outcome: TypeAlias = Literal["alike", "moved", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Which sidecars go first, and how long their decisions are compared."""

    part: Canary
    seconds: float
    decisions: int
    """Of the canary: with so many it ends before its time."""
    tolerance: float
    quiet_ok: bool
    """Whether a canary that nobody asks enough is good."""

    @property
    def words(self) -> str:
        """The part: `25 % of app=web`."""
        labels = ", ".join(f"{name}={value}" for name, value in sorted(self.part.labels.items()))
        share = [f"{self.part.share * 100:.4g} %"] if self.part.share < 1 else []
        parts = [*share, *([labels] if labels else [])]
        return " of ".join(parts) or "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What was compared, and what comes of it."""

    outcome: Outcome
    good: bool
    says: str
    seconds: float
    canary: int
    """Decisions of the canary."""
    others: int
    compared: tuple[Compared, ...] = ()

    def json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "outcome": self.outcome,
            "good": self.good,
            "says": self.says,
            "seconds": round(self.seconds, 3),
            "decisions": {"canary": self.canary, "others": self.others},
            "compared": [one.json() for one in self.compared],
        }


def observe(read: Reader, during: Channel, trial: Trial, console: Console | None) -> Ended:
    """Count decisions until there are enough or time is up, then compare them. A rule that surely moved ends it at once."""
    canary, others = sides(during)

    def counted() -> Counts:
        return counts(read(), canary, others)

    start = counted()
    begun = time.monotonic()
    while True:
        found = since(counted(), start)
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
    return Ended(
        outcome=outcome,
        good=outcome == "alike" or (outcome == "quiet" and trial.quiet_ok),
        says=says,
        seconds=seconds,
        canary=mine,
        others=theirs,
        compared=compared,
    )


def sides(during: Channel) -> tuple[str, str]:
    """By which revisions the decisions of both sides are told apart: the policies, or the states where these are the same."""
    own = during.canary or Canary()
    if own.policy is not None and during.policy is not None and own.policy != during.policy:
        return own.policy, during.policy
    if own.state is not None and during.state is not None and own.state != during.state:
        return own.state, during.state
    raise UsageError(
        "a canary in shards alone cannot be compared: their decisions are not told apart; leave `--canary` off"
    )
