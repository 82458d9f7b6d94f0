"""What success gives, compared as the rows that it writes to the state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from privtab.analysis.diff.nodes import Verdict
from privtab.ir.canonical import target_text
from privtab.ir.nodes import Effect, Rule, Target

Outcome: TypeAlias = tuple[str, str, Target]
"""(`grant` or `become`, a privilege, `owner` or `member`, where)"""


def outcomes(effects: Iterable[Effect], *, gains: bool) -> frozenset[Outcome]:
    """What the caller gets, or what goes; a set is its members."""
    return frozenset(
        (effect.kind, what, effect.target)
        for effect in effects
        if (effect.kind != "revoke") == gains
        for what in effect.privileges or (effect.what,)
    )


def compare_effects(before: Rule, after: Rule) -> Verdict:
    """Wider where the caller gets more, or less goes, and nothing the other way round."""
    got, gets = outcomes(before.effects, gains=True), outcomes(after.effects, gains=True)
    went, goes = outcomes(before.effects, gains=False), outcomes(after.effects, gains=False)
    return verdict(more=not (gets <= got and went <= goes), less=not (got <= gets and goes <= went))


def verdict(*, more: bool, less: bool) -> Verdict:
    """The verdict on two sides by whether the later one has more and whether it has less."""
    if more and less:
        return Verdict.INCOMPARABLE
    return Verdict.WIDER if more else Verdict.NARROWER if less else Verdict.EQUAL


def together(one: Verdict, other: Verdict) -> Verdict:
    """The verdict on a row by those on its condition and on its effects."""
    if Verdict.UNKNOWN in (one, other):
        return Verdict.UNKNOWN
    both = {one, other} - {Verdict.EQUAL}
    return Verdict.EQUAL if not both else both.pop() if len(both) == 1 else Verdict.INCOMPARABLE


def effect_texts(rule: Rule) -> tuple[str, ...]:
    """The effects in types: `grant ALL (namespace)`."""
    return tuple(f"{e.kind} {e.what} ({target_text(e.target, rule)})" for e in rule.effects)
