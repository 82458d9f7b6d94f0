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


def compare(view: View, first: Rule, second: Rule) -> Comparison:
    """Compare two rules: `wider` if the first allows all that the second does and more; `unknown` is recorded."""
    from privtab.ir.formula import asked_condition

    same_objects = {w.name: frozenset(w.types) for w in first.withs} == {
        w.name: frozenset(w.types) for w in second.withs
    }
    breadth: Breadth = "incomparable"
    if same_objects:
        # A request without the last name is another kind of request and is compared separately.
        naming = (True, False) if first.unnamed and second.unnamed else (True,)
        pairs = {tuple(asked_condition(view.program, rule, named=n) for rule in (first, second)) for n in naming}
        allows_at_least = _all(
            view.known_to_imply(first, second_condition, first_condition) for first_condition, second_condition in pairs
        )
        allows_at_most = _all(
            view.known_to_imply(first, first_condition, second_condition) for first_condition, second_condition in pairs
        )
        allows_at_least, allows_at_most = (
            allows_at_least if first.unnamed >= second.unnamed else False,
            allows_at_most if first.unnamed <= second.unnamed else False,
        )
        if allows_at_least is None or allows_at_most is None:
            view.undecided(view.policy.rows[first.entity, first.operation])
            breadth = "unknown"
        else:
            breadth = (
                "equal"
                if allows_at_least and allows_at_most
                else "wider"
                if allows_at_least
                else "narrower"
                if allows_at_most
                else "incomparable"
            )
    return Comparison(
        breadth=breadth,
        same_objects=same_objects,
        same_effects=_effects(first) == _effects(second),
        same_report=first.report == second.report,
    )


def _all(answers: Iterable[bool | None]) -> bool | None:
    """Whether all answers are true; None if unknown."""
    known = list(answers)
    return False if False in known else None if None in known else True


def _effects(rule: Rule) -> frozenset[object]:
    return frozenset(
        (effect.kind, name, effect.target)
        for effect in (*rule.effects, *rule.delegations)
        for name in effect.privileges or (effect.text,)
    )


def always(formula: Formula) -> bool:
    """Whether a condition is literally one that always holds."""
    from privtab.ir.nodes import ALWAYS

    return formula == ALWAYS
