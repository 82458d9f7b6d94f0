"""Boolean circuits, and which of their literals can hold together, decided by a SAT solver within a budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING
from weakref import finalize

from privtab.errors import Undecided

if TYPE_CHECKING:
    from pysat.solvers import Solver as Engine

CONFLICTS = 10_000
"""Limit on the solver's conflicts for one finding or comparison: a second or so."""
PROPAGATIONS = 4_000_000
"""Limit on propagated literals for the same: a few seconds, for long conditions."""
LITERALS = 3_000_000
"""Limit on the literals of one circuit: a few hundred megabytes."""
_MOST_VARIABLES = 2_000
"""Variables after which a new circuit is begun, since each model assigns every variable; more if one question needs more."""
_OVER_BUDGET = f"not decided within {CONFLICTS:,} conflicts of the solver"


class Circuits:
    """Circuits of conjunctions over variables, and queries about them.

    A literal is a number, its negation the negative number. Queries raise `Undecided` if they exceed what is left of the budget;
    `renew` restores it.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._delete_engine: Callable[[], object] = lambda: None
        self._last_variable = self._literals_written = self._literals_at_renewal = self._variables_at_renewal = (
            self._largest
        ) = 0
        self._new_circuit()
        self.renew()

    def renew(self) -> None:
        """Restore the full budget for the next finding or comparison."""
        self._conflicts = CONFLICTS
        self._propagations = PROPAGATIONS
        self._largest = max(self._largest, self._last_variable - self._variables_at_renewal)
        if self._last_variable > max(_MOST_VARIABLES, 2 * self._largest) or self._literals_written > LITERALS // 2:
            self._new_circuit()
        self._variables_at_renewal, self._literals_at_renewal = self._last_variable, self._literals_written

    @property
    def spent(self) -> float:
        """The share of the budget spent since it was renewed."""
        literals = self._literals_written - self._literals_at_renewal
        return max(1 - self._conflicts / CONFLICTS, 1 - self._propagations / PROPAGATIONS, literals / LITERALS)

    def _new_circuit(self) -> None:
        from pysat.solvers import Solver as Engine

        # MiniSat tries false first, so that models have few facts; both its budgets are counts, not times.
        self._engine = Engine(name="minisat-gh")
        # Also free it at exit, before its module is unloaded.
        self._delete_engine()
        self._delete_engine = finalize(self, self._engine.delete)
        self._last_variable = self._literals_written = self._literals_at_renewal = self._variables_at_renewal = (
            self._largest
        ) = 0
        self._gates: dict[tuple[int, ...], int] = {}
        self._inputs: dict[int, frozenset[int]] = {}
        self.true = self._new_variable()
        self._add_clause([self.true])

    def _new_variable(self) -> int:
        self._last_variable += 1
        return self._last_variable

    def _add_clause(self, literals: list[int]) -> None:
        assert self._engine is not None
        self._literals_written += len(literals)
        if self._literals_written - self._literals_at_renewal > LITERALS:
            raise Undecided(f"the conditions take more than {LITERALS:,} literals")
        self._engine.add_clause(literals)

    def all_of(self, literals: Iterable[int]) -> int:
        """The literal that holds if all the given ones do."""
        distinct: set[int] = set()
        for literal in literals:
            if literal == -self.true or -literal in distinct:
                return -self.true
            if literal != self.true:
                distinct.add(literal)
        if len(distinct) < 2:
            return next(iter(distinct), self.true)
        key = tuple(sorted(distinct))
        if key not in self._gates:
            gate = self._gates[key] = self._new_variable()
            self._inputs[gate] = frozenset(distinct)
            for literal in key:
                self._add_clause([-gate, literal])
            self._add_clause([gate, *(-literal for literal in key)])
        return self._gates[key]

    def any_of(self, literals: Iterable[int]) -> int:
        """The literal that holds if any of the given ones does."""
        return -self.all_of(-literal for literal in literals)

    def possible(self, literals: Iterable[int]) -> bool:
        """Whether all literals can hold together. Raises Undecided if that exceeds what is left of the budget."""
        assert self._engine is not None
        assumed = {literal for literal in literals if literal != self.true}
        if -self.true in assumed or any(-literal in assumed for literal in assumed):
            return False
        for literal in assumed:  # a negated conjunction contradicts its own parts
            if self._inputs.get(-literal, frozenset()) and self._inputs[-literal] <= assumed:
                return False
        if self._conflicts <= 0 or self._propagations <= 0:
            raise Undecided(_OVER_BUDGET)
        before = self._engine.accum_stats()
        self._engine.conf_budget(self._conflicts)
        self._engine.prop_budget(self._propagations)
        answer = self._engine.solve_limited(assumptions=sorted(assumed, key=abs))
        after = self._engine.accum_stats()
        self._conflicts -= after["conflicts"] - before["conflicts"]
        # Solving costs a decision for each variable that is not propagated.
        self._propagations -= after["propagations"] - before["propagations"]
        self._propagations -= after["decisions"] - before["decisions"]
        if answer is None:
            self._conflicts = 0
            raise Undecided(_OVER_BUDGET)
        return bool(answer)

    def implies(self, premise: int, conclusion: int, *assumptions: int) -> bool:
        """Whether the premise implies the conclusion if the given literals hold."""
        return premise == conclusion or not self.possible([premise, -conclusion, *assumptions])

    def implied(self, literals: Collection[int], candidates: Collection[int]) -> frozenset[int]:
        """The candidates that hold whenever all the literals do."""
        found: set[int] = set()
        remaining = list(dict.fromkeys(candidates))
        while remaining:
            candidate = remaining.pop()
            if self.possible([*literals, -candidate]):
                if remaining:  # what does not hold in this model is not implied
                    true_literals = self._true_literals()
                    remaining = [other for other in remaining if (abs(other) in true_literals) == (other > 0)]
            else:
                found.add(candidate)
        return frozenset(found)

    def _true_literals(self) -> frozenset[int]:
        assert self._engine is not None
        return frozenset(number for number in self._engine.get_model() if number > 0)
