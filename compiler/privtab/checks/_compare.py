"""Compares two rules for the same operation exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Formula, Rule

Breadth = Literal["equal", "wider", "narrower", "incomparable", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one rule allows compared with another, and whether everything else is the same."""

    breadth: Breadth
    same_objects: bool
    same_effects: bool
    same_report: bool

    @property
    def equal(self) -> bool:
        """Whether the rules mean the same."""
        return self.breadth == "equal" and self.same_objects and self.same_effects and self.same_report


def compare(view: View, one: Rule, other: Rule) -> Comparison:
    """Compare two rules: `wider` if `one` allows all that `other` does and more; `unknown` is recorded."""
    from privtab.ir.formula import asked_condition

    same_objects = {w.name: frozenset(w.types) for w in one.withs} == {w.name: frozenset(w.types) for w in other.withs}
    breadth: Breadth = "incomparable"
    if same_objects:
        # A request without the last name is another kind of request and is compared separately.
        naming = (True, False) if one.unnamed and other.unnamed else (True,)
        pairs = {tuple(asked_condition(view.program, rule, named=n) for rule in (one, other)) for n in naming}
        more = _all(view.known_to_imply(one, theirs, ours) for ours, theirs in pairs)
        less = _all(view.known_to_imply(one, ours, theirs) for ours, theirs in pairs)
        more, less = more if one.unnamed >= other.unnamed else False, less if one.unnamed <= other.unnamed else False
        if more is None or less is None:
            view.undecided(view.policy.rows[one.entity, one.operation])
            breadth = "unknown"
        else:
            breadth = "equal" if more and less else "wider" if more else "narrower" if less else "incomparable"
    return Comparison(
        breadth=breadth,
        same_objects=same_objects,
        same_effects=_effects(one) == _effects(other),
        same_report=one.report == other.report,
    )


def _all(answers: Iterable[bool | None]) -> bool | None:
    """Whether all answers are true; None if unknown."""
    known = list(answers)
    return False if False in known else None if None in known else True


def _effects(rule: Rule) -> frozenset[object]:
    return frozenset(
        (effect.kind, what, effect.target)
        for effect in rule.effects
        for what in effect.privileges or (f"`{effect.what}`",)
    )


def always(formula: Formula) -> bool:
    """Whether a condition is literally one that always holds."""
    from privtab.ir.nodes import ALWAYS

    return formula == ALWAYS
