"""The budget of coverage and mutation for one rule: counted, not timed, so that every machine gets the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from privtab.errors import Undecided
from privtab.ir.exact import ImplicationChecker
from privtab.ir.nodes import Rule

STEPS = 100_000
"""How many parts of conditions are looked at for one rule."""
SETTING_COST = STEPS // 256
"""The cost of one kind of request: flags, and types of objects."""
SOLVER_BUDGETS = 2.0
"""How many times the budget of one question to the solver may be spent on one rule."""

Answer = TypeVar("Answer")


class Budget:
    """The remaining budget of one rule; raises `Undecided` when it is spent."""

    def __init__(self, exact: ImplicationChecker, rule: Rule) -> None:
        self._exact = exact
        self._rule = rule
        self._steps = STEPS
        self._questions = SOLVER_BUDGETS

    def spend(self, steps: int) -> None:
        """Spend steps."""
        self._steps -= steps
        if self._steps < 0:
            raise Undecided(f"`{self._rule.id}` takes more than {STEPS:,} steps")

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Ask a question that `ImplicationChecker` passes to its solver, and return the answer."""
        if self._questions <= 0:
            raise Undecided(f"`{self._rule.id}` asks too much of the solver")
        self._exact.solver.renew()
        try:
            return question()
        finally:
            self._questions -= self._exact.solver.spent
