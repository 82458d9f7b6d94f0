"""Compares effects as the rows that they write to the state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from privtab.analysis.diff.nodes import Verdict
from privtab.ir.nodes import Effect, Rule, Target
from privtab.names import ANY_PRIVILEGE

EffectKey: TypeAlias = tuple[str, str, Target]
"""(`grant` or `become`; a privilege, `owner` or `member`; target)"""


def outcomes(effects: Iterable[Effect], *, gains: bool) -> frozenset[EffectKey]:
    """What the caller gains or may give and take, or what is revoked; a set counts as its members."""
    return frozenset(
        (effect.kind, what, effect.target)
        for effect in effects
        if (effect.kind != "revoke") == gains
        for what in effect.privileges or (effect.text,)
    )


def compare_effects(before: Rule, after: Rule) -> Verdict:
    """Wider if the caller gains more or less is revoked, and not the reverse as well."""
    effects = [(*rule.effects, *rule.delegations) for rule in (before, after)]
    # Whichever privileges there are: those that are new are told where they are declared.
    of_any = [{(e.kind, e.target) for e in side if e.what == ANY_PRIVILEGE} for side in effects]
    effects = [
        tuple(e for e in side if e.what != ANY_PRIVILEGE or (e.kind, e.target) not in of_any[0] & of_any[1])
        for side in effects
    ]
    gains_before, gains_after = (outcomes(side, gains=True) for side in effects)
    revoked_before, revoked_after = (outcomes(side, gains=False) for side in effects)
    return verdict(
        more=not (gains_after <= gains_before and revoked_before <= revoked_after),
        less=not (gains_before <= gains_after and revoked_after <= revoked_before),
    )


def verdict(*, more: bool, less: bool) -> Verdict:
    """The verdict for a later side that has more, less, or both."""
    if more and less:
        return Verdict.INCOMPARABLE
    return Verdict.WIDER if more else Verdict.NARROWER if less else Verdict.EQUAL


def combine_verdicts(first: Verdict, second: Verdict) -> Verdict:
    """Combine the verdicts on the condition and the effects of a row."""
    if Verdict.UNKNOWN in (first, second):
        return Verdict.UNKNOWN
    different = {first, second} - {Verdict.EQUAL}
    return Verdict.EQUAL if not different else different.pop() if len(different) == 1 else Verdict.INCOMPARABLE
