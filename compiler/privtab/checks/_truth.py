"""The conditions of one row, combined from their parts and compared by the solver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from privtab.ir import nodes as ir
from privtab.ir.formula import without_name
from privtab.ir.unroll import Levels, unrolled

if TYPE_CHECKING:
    from privtab.checks._view import View


class Circuit:
    """Conditions as literals, for some types of the `with` objects.

    `unnamed`: the type of a resource whose last name is omitted. `levels`: where types nest, the most levels that matter, and those
    on the paths of the objects. Raises Undecided if a question is too expensive.
    """

    def __init__(
        self,
        view: View,
        types: Mapping[str, Collection[str]],
        unnamed: str | None = None,
        levels: tuple[int, Levels] | None = None,
    ) -> None:
        self._program, exact = view.program, view.exact
        self._unnamed = unnamed
        self._at: Callable[[ir.Formula], ir.Formula] | None = None
        if levels is not None:
            most, at = levels
            unrolling = unrolled(view.program)
            self._program, exact = unrolling.at_most(most), view.exact.at_most(most)
            self._at = partial(unrolling.formula, levels=at)
            self._unnamed = unnamed and unrolling.at(unnamed, at.get(ir.RESOURCE, 1))
            types = {slot: [unrolling.at(t, at.get(slot, 1)) for t in of_slot] for slot, of_slot in types.items()}
        self.solver = exact.solver
        self.true = self.solver.true
        self._requests = self.solver.requests(types)
        self.all_of = self.solver.all_of
        self.any_of = self.solver.any_of

    def leaf(self, formula: ir.Formula) -> int:
        """The literal of a condition."""
        if self._at is not None:
            formula = self._at(formula)
        if self._unnamed is not None:
            formula = without_name(self._program, formula, self._unnamed)
        return self.solver.literal(formula)

    def when(self, flag: str, value: int) -> int:
        """The literal of a value that is required only if the flag is set."""
        return self.any_of([-self.solver.flag(flag), value])

    def possible(self, *literals: int) -> bool:
        """Whether all literals hold in some state, for some request."""
        return self.solver.possible([*literals, self._requests])

    def implies(self, literal: int, other: int) -> bool:
        """Whether the other literal holds wherever the first one does."""
        return literal == other or not self.possible(literal, -other)

    def implied(self, literal: int, others: Iterable[int]) -> frozenset[int]:
        """Those of the other literals that hold wherever the first one does."""
        return self.solver.implied([literal, self._requests], tuple(others))
