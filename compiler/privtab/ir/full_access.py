"""Conditions for a caller who holds every atom, or none: the result depends only on flags and the types of objects."""

from __future__ import annotations

from privtab.ir.facts import FactSemantics
from privtab.ir.nodes import Atom, Compare
from privtab.ir.solver import Solver


class FullAccess(Solver):
    """The solver for a caller who holds every atom, with any values of attributes."""

    def __init__(self, semantics: FactSemantics) -> None:
        super().__init__(semantics, semantics)

    def _atom(self, atom: Atom, side: int) -> int:
        return super()._atom(atom, side) if isinstance(atom, Compare) else self.true


class NoAccess(Solver):
    """The solver for a caller who holds no atom."""

    def __init__(self, semantics: FactSemantics) -> None:
        super().__init__(semantics, semantics)

    def _atom(self, atom: Atom, side: int) -> int:
        del atom, side
        return -self.true
