"""How much coverage and mutation may cost for one rule: counted, not timed, so that every machine finds the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from privtab.errors import Undecided
from privtab.ir.exact import ImplicationChecker
from privtab.ir.nodes import Rule

STEPS = 100_000
"""Parts of conditions that are looked at for one rule."""
KIND = STEPS // 256
"""What one kind of request costs: flags, and types of objects."""
QUESTIONS = 2.0
"""How often the budget of one question to the solver may be spent on one rule."""

Answer = TypeVar("Answer")


class Budget:
    """What is left for one rule; `Undecided` is raised where it is gone."""

    def __init__(self, exact: ImplicationChecker, rule: Rule) -> None:
        self._exact = exact
        self._rule = rule
        self._steps = STEPS
        self._questions = QUESTIONS

    def spend(self, steps: int) -> None:
        """Pay for steps."""
        self._steps -= steps
        if self._steps < 0:
            raise Undecided(f"`{self._rule.id}` takes more than {STEPS:,} steps")

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question that `ImplicationChecker` asks of its solver."""
        if self._questions <= 0:
            raise Undecided(f"`{self._rule.id}` asks too much of the solver")
        self._exact.solver.renew()
        try:
            return question()
        finally:
            self._questions -= self._exact.solver.spent
