"""Whether a canary decides as the others do: allow shares by rule, compared by a test of two proportions.

An exact comparison of the policies has been a gate before. This looks at what callers really ask: whether those that the
canary serves are refused, or allowed, or left without an answer, more often than the others meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from privtab.errors import UsageError
from privtab.registry.deploy.nodes import Tally
from privtab.registry.nodes import Canary

Verdict: TypeAlias = Literal["alike", "moved", "few"]
ERROR_RATE = 0.001
"""How often a canary that decides like the others may be called other, over all rules that are compared."""
LEAST = 20
"""Decisions on each side below which a rule says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """Decisions of one side by one rule."""

    allowed: int = 0
    denied: int = 0
    undefined: int = 0

    @property
    def asked(self) -> int:
        """How many there were."""
        return self.allowed + self.denied + self.undefined

    def share(self, of: Literal["allowed", "undefined"]) -> float:
        """A part of them, from 0 to 1."""
        part = self.allowed if of == "allowed" else self.undefined
        return part / self.asked if self.asked else 0.0

    def __add__(self, other: RuleCount) -> RuleCount:
        return RuleCount(
            allowed=self.allowed + other.allowed,
            denied=self.denied + other.denied,
            undefined=self.undefined + other.undefined,
        )

    def __sub__(self, other: RuleCount) -> RuleCount:
        # A server may forget a revision that nobody decided by for long, and count from 0 again.
        if self.asked < other.asked:
            return self
        return RuleCount(
            allowed=max(0, self.allowed - other.allowed),
            denied=max(0, self.denied - other.denied),
            undefined=max(0, self.undefined - other.undefined),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleComparison:
    """One rule on both sides. `p`: how often chance alone makes a difference as great as this."""

    rule: str
    canary: RuleCount
    others: RuleCount
    of: Literal["allowed", "undefined"]
    p: float
    verdict: Verdict

    @property
    def difference(self) -> float:
        """How much greater the canary's share is."""
        return self.canary.share(self.of) - self.others.share(self.of)

    @property
    def says(self) -> str:
        """`shop/allow: allowed 12.0 % (of 250) beside 48.1 % (of 1,240)`."""
        return (
            f"{self.rule}: {self.of} {self.canary.share(self.of):.1%} (of {self.canary.asked:,}) "
            f"beside {self.others.share(self.of):.1%} (of {self.others.asked:,})"
        )

    def json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "rule": self.rule,
            "of": self.of,
            "canary": {"share": round(self.canary.share(self.of), 6), "decisions": self.canary.asked},
            "others": {"share": round(self.others.share(self.of), 6), "decisions": self.others.asked},
            "p": self.p,
            "verdict": self.verdict,
        }


Counts: TypeAlias = dict[tuple[bool, str], RuleCount]
"""(whether of the canary, rule) → decisions."""


def counts(tallies: Iterable[Tally], canary: str, others: str) -> Counts:
    """The decisions by two revisions of one kind: the canary's, and what the others run."""
    found: Counts = {}
    for tally in tallies:
        if tally.revision in {canary, others}:
            key = tally.revision == canary, tally.rule
            found[key] = found.get(key, RuleCount()) + RuleCount(
                allowed=tally.allowed, denied=tally.denied, undefined=tally.undefined
            )
    return found


def since(now: Counts, start: Counts) -> Counts:
    """What was decided from the start on."""
    return {key: count - start.get(key, RuleCount()) for key, count in now.items()}


def added(one: Counts, other: Counts) -> Counts:
    """Both together."""
    return {key: one.get(key, RuleCount()) + other.get(key, RuleCount()) for key in one.keys() | other.keys()}


def asked(found: Counts, *, canary: bool) -> int:
    """How many decisions one side made."""
    return sum(count.asked for (own, _), count in found.items() if own is canary)


def compare(found: Counts, *, tolerance: float, rate: float = ERROR_RATE) -> tuple[RuleComparison, ...]:
    """Every rule that either side was asked by, those that moved first.

    A rule moved where its share is other by more than `tolerance` (0 to 1), and that is no chance.
    """
    rules = sorted({rule for _, rule in found})
    pairs = [(rule, found.get((True, rule), RuleCount()), found.get((False, rule), RuleCount())) for rule in rules]
    tested = 2 * sum(min(one.asked, other.asked) >= LEAST for _, one, other in pairs)
    made: list[RuleComparison] = []
    for rule, one, other in pairs:
        for of in ("allowed", "undefined"):
            if of == "undefined" and one.undefined + other.undefined == 0:
                continue
            p = chance(one, other, of)
            apart = abs(one.share(of) - other.share(of))
            enough = min(one.asked, other.asked) >= LEAST
            moved = enough and apart > tolerance and p < rate / max(1, tested)
            verdict: Verdict = "moved" if moved else "alike" if enough else "few"
            made.append(RuleComparison(rule=rule, canary=one, others=other, of=of, p=p, verdict=verdict))
    order = {"moved": 0, "alike": 1, "few": 2}
    return tuple(sorted(made, key=lambda c: (order[c.verdict], -abs(c.difference), c.rule)))


def chance(one: RuleCount, other: RuleCount, of: Literal["allowed", "undefined"]) -> float:
    """The two-sided p of a test of two proportions with a pooled share; 1 where a side has nothing.

    >>> chance(RuleCount(allowed=50, denied=50), RuleCount(allowed=50, denied=50), "allowed")
    1.0
    >>> round(chance(RuleCount(allowed=45, denied=55), RuleCount(allowed=65, denied=35), "allowed"), 4)
    0.0045
    """
    if not one.asked or not other.asked:
        return 1.0
    parts = [c.allowed if of == "allowed" else c.undefined for c in (one, other)]
    pooled = sum(parts) / (one.asked + other.asked)
    error = math.sqrt(pooled * (1 - pooled) * (1 / one.asked + 1 / other.asked))
    return 1.0 if error == 0 else math.erfc(abs(one.share(of) - other.share(of)) / error / math.sqrt(2))


def part(text: str) -> Canary:
    """Which sidecars go first: a share (`10%`, `0.1`), a label (`zone=a`), or both (`app=web,25%`); raises UsageError."""
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
