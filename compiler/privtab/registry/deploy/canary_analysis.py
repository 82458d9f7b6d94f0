"""Compare the decisions of a canary with those of the other sidecars, by rule, with a two-proportion test.

The diff gate has already compared the policies exactly. This compares actual requests: whether the canary denies, allows
or leaves undecided a different share of them than the other sidecars in the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from privtab.errors import UsageError
from privtab.registry.deploy.nodes import DecisionCount, RuleCount
from privtab.registry.nodes import Canary

Verdict: TypeAlias = Literal["alike", "moved", "few"]
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
        """The canary's share minus that of the others."""
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
    """The decisions by two revisions of one kind, that of the canary and that of the others."""
    by_rule: Counts = {}
    for count in decision_counts:
        if count.revision in {canary, others}:
            key = count.revision == canary, count.rule
            by_rule[key] = by_rule.get(key, RuleCount()) + count
    return by_rule


def since(now: Counts, start: Counts) -> Counts:
    """The decisions since the start."""
    return {key: count - start.get(key, RuleCount()) for key, count in now.items()}


def added(left: Counts, right: Counts) -> Counts:
    """The sum of both."""
    return {key: left.get(key, RuleCount()) + right.get(key, RuleCount()) for key in left.keys() | right.keys()}


def decision_count(by_rule: Counts, *, canary: bool) -> int:
    """The number of decisions on one side."""
    return sum(count.total for (of_canary, _), count in by_rule.items() if of_canary is canary)


def compare(by_rule: Counts, *, tolerance: float, rate: float = ERROR_RATE) -> tuple[RuleComparison, ...]:
    """Compare all rules used on either side; those that moved come first.

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
    order = {"moved": 0, "alike": 1, "few": 2}
    return tuple(sorted(comparisons, key=lambda c: (order[c.verdict], -abs(c.difference), c.rule)))


def chance(canary: RuleCount, others: RuleCount, of: Literal["allowed", "undefined"]) -> float:
    """The two-sided p-value of a pooled two-proportion test; 1 if a side has no decisions.

    >>> chance(RuleCount(allowed=50, denied=50), RuleCount(allowed=50, denied=50), "allowed")
    1.0
    >>> round(chance(RuleCount(allowed=45, denied=55), RuleCount(allowed=65, denied=35), "allowed"), 4)
    0.0045
    """
    if not canary.total or not others.total:
        return 1.0
    parts = [c.allowed if of == "allowed" else c.undefined for c in (canary, others)]
    pooled = sum(parts) / (canary.total + others.total)
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
