"""Observe the decisions of a canary, and compare them with the other sidecars' decisions using a two-proportion test."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from privtab.base import UsageError
from privtab_server.registry.deploy import DecisionCount, RuleCount
from privtab_server.registry.nodes import Canary, Channel

if TYPE_CHECKING:
    from rich.console import Console

    from privtab_server.registry.deploy import Fleet
    from privtab_server.registry.deploy.rollout import FleetReader


EVERY = 0.5
"""Seconds between two readings. OPA sends its decision logs every few seconds."""
CERTAIN = 1e-6
"""The error rate for stopping early; low, since repeated tests find differences by chance."""

Movement: TypeAlias = Literal["alike", "moved", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """The sidecars that go first, and how long their decisions are compared."""

    part: Canary
    seconds: float
    decisions: int
    """Decisions on each side with which the observation ends early."""
    tolerance: float
    quiet_ok: bool
    """True if a canary with too few decisions to compare passes."""

    @property
    def words(self) -> str:
        """The part: `25 % of app=web`."""
        labels = ", ".join(f"{name}={value}" for name, value in sorted(self.part.labels.items()))
        share = f"{self.part.share * 100:.4g} %" if self.part.share < 1 else ""
        return " of ".join(filter(None, (share, labels))) or "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOutcome:
    """The result of observing a canary."""

    outcome: Movement
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

    Logs arrive late, so the server counts decisions by the time they were made.
    """

    def __init__(self, channel: Channel) -> None:
        self._place = f"{channel.channel}/{channel.system}"
        self._sides = sides(channel)
        self._began: tuple[str, str] | None = None
        self._before: Counts = {}
        self._found: Counts = {}

    def now(self, fleet: Fleet) -> Counts:
        """Return the counts so far; the earlier counts where the server does not know of the canary yet."""
        if self._place not in fleet.canaries_in_progress:
            return self._found
        since, decisions = fleet.canaries_in_progress[self._place]
        if self._began != (fleet.started, since):
            # A restarted server counts from zero; keep the earlier counts.
            self._began, self._before = (fleet.started, since), self._found
        self._found = added(self._before, counts(decisions, *self._sides))
        return self._found


def observe(read: FleetReader, channel: Channel, plan: CanaryPlan, console: Console | None) -> CanaryOutcome:
    """Count decisions until there are enough or time is up, then compare them. Ends early if a rule has clearly moved."""
    counter = CanaryCounts(channel)
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
            numbers = f"{of_canary:,} decisions beside {of_others:,}"
            console.print(f"canary: {numbers} of the others ({seconds:.0f} s)", end="\r")
        time.sleep(EVERY)
    compared = compare(found, tolerance=plan.tolerance)
    moved = [comparison for comparison in compared if comparison.verdict == "moved"]
    alike = sum(comparison.verdict == "alike" for comparison in compared)
    outcome: Movement = "moved" if moved else "alike" if alike else "quiet"
    numbers = f"{of_canary:,} decisions beside {of_others:,}"
    says = f"{numbers}: nothing moved by more than {plan.tolerance:.1%}"
    if moved:
        says = f"{len(moved)} of {len(compared)} moved: {moved[0].says}"
    elif not alike:
        says = f"{numbers} in {seconds:.0f} s are too few to compare"
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


Verdict: TypeAlias = Literal["moved", "alike", "few"]
"""The verdicts in the order in which reports list rules."""
ERROR_RATE = 0.001
"""Probability of a false alarm for a canary that decides like the others, over all compared rules."""
LEAST = 20
"""Minimum decisions on each side for a rule to be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleComparison:
    """One rule on both sides. `p`: the probability that chance alone makes such a difference."""

    rule: str
    canary: RuleCount
    others: RuleCount
    of: Literal["allowed", "undefined"]
    p: float
    verdict: Verdict

    @property
    def difference(self) -> float:
        """The canary's share minus the others' share."""
        return self.canary.share(self.of) - self.others.share(self.of)

    @property
    def says(self) -> str:
        """`shop/allow: allowed 12.0 % (of 250) beside 48.1 % (of 1,240)`."""
        return (
            f"{self.rule}: {self.of} {self.canary.share(self.of):.1%} (of {self.canary.total:,}) "
            f"beside {self.others.share(self.of):.1%} (of {self.others.total:,})"
        )

    def json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rule": self.rule,
            "of": self.of,
            "canary": {"share": round(self.canary.share(self.of), 6), "decisions": self.canary.total},
            "others": {"share": round(self.others.share(self.of), 6), "decisions": self.others.total},
            "p": self.p,
            "verdict": self.verdict,
        }


Counts: TypeAlias = dict[tuple[bool, str], RuleCount]
"""(whether of the canary, rule) → counts."""


def counts(decision_counts: Iterable[DecisionCount], canary: str, others: str) -> Counts:
    """The decisions by two revisions of one kind, the canary's and the others'."""
    by_rule: Counts = {}
    for count in decision_counts:
        if count.revision in {canary, others}:
            key = count.revision == canary, count.rule
            by_rule[key] = by_rule.get(key, RuleCount()) + count
    return by_rule


def added(left: Counts, right: Counts) -> Counts:
    """The sum of both."""
    return {key: left.get(key, RuleCount()) + right.get(key, RuleCount()) for key in left.keys() | right.keys()}


def decision_count(by_rule: Counts, *, canary: bool) -> int:
    """The number of decisions on one side."""
    return sum(count.total for (of_canary, _), count in by_rule.items() if of_canary is canary)


def compare(by_rule: Counts, *, tolerance: float, rate: float = ERROR_RATE) -> tuple[RuleComparison, ...]:
    """Compare all rules used on either side; rules that moved come first.

    A rule moved if its shares differ significantly and by more than `tolerance` (0 to 1).
    """
    rules = sorted({rule for _, rule in by_rule})
    pairs = [(rule, by_rule.get((True, rule), RuleCount()), by_rule.get((False, rule), RuleCount())) for rule in rules]
    tested = 2 * sum(min(canary.total, others.total) >= LEAST for _, canary, others in pairs)
    comparisons: list[RuleComparison] = []
    for rule, canary, others in pairs:
        for of in ("allowed", "undefined"):
            if of == "undefined" and canary.undefined + others.undefined == 0:
                continue
            p = chance(canary, others, of)
            gap = abs(canary.share(of) - others.share(of))
            enough = min(canary.total, others.total) >= LEAST
            moved = enough and gap > tolerance and p < rate / max(1, tested)
            verdict: Verdict = "moved" if moved else "alike" if enough else "few"
            comparisons.append(RuleComparison(rule=rule, canary=canary, others=others, of=of, p=p, verdict=verdict))
    order = get_args(Verdict)
    return tuple(sorted(comparisons, key=lambda c: (order.index(c.verdict), -abs(c.difference), c.rule)))


def chance(canary: RuleCount, others: RuleCount, of: Literal["allowed", "undefined"]) -> float:
    """The two-sided p-value of a pooled two-proportion test; 1 if a side has no decisions.

    >>> chance(RuleCount(allowed=50, denied=50), RuleCount(allowed=50, denied=50), "allowed")
    1.0
    >>> round(chance(RuleCount(allowed=45, denied=55), RuleCount(allowed=65, denied=35), "allowed"), 4)
    0.0045
    """
    if not canary.total or not others.total:
        return 1.0
    pooled = (canary + others).share(of)
    error = math.sqrt(pooled * (1 - pooled) * (1 / canary.total + 1 / others.total))
    return 1.0 if error == 0 else math.erfc(abs(canary.share(of) - others.share(of)) / error / math.sqrt(2))


def part(text: str) -> Canary:
    """Parse the part of the sidecars in a canary: a share (`10%`, `0.1`), labels (`zone=a`), or both (`app=web,25%`).

    Raises UsageError.
    """
    share: float | None = None
    labels: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = word.partition("=")
        if equals and name and value:
            labels[name] = value
        elif not equals and share is None:
            share = _share(word, text)
        else:
            raise _unreadable(text)
    if share is None and not labels:
        raise _unreadable(text)
    return Canary(share=1.0 if share is None else share, labels=labels)


def _share(word: str, text: str) -> float:
    try:
        share = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        raise _unreadable(text) from None
    if not 0 < share <= 1:
        raise UsageError(f"`--canary {text}`: a share lies above 0 % and at 100 % at most")
    return share


def _unreadable(text: str) -> UsageError:
    return UsageError(f"`--canary {text}`: write a share (10%), labels (zone=a), or both (app=web,25%)")
