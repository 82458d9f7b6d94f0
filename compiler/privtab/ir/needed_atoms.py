"""Find the atoms that occur in some minimal set of a condition, by a SAT solver; and what holds for who has all atoms or none."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from privtab.ir.facts import FactSemantics
from privtab.ir.nodes import Atom, Compare, Formula
from privtab.ir.solver import Slots, Solver

if TYPE_CHECKING:
    from privtab.ir.canonical import Canonical


class NeededAtoms(Solver):
    """Finds the atoms that occur in some minimal set of a condition, for given flags and types of objects.

    A state is a set of atoms that is closed under entailment. An atom is needed if such a set satisfies the condition, and without
    the atom is still closed but no longer satisfies the condition.
    """

    def __init__(self, semantics: FactSemantics) -> None:
        self._without: dict[Atom, int] = {}
        super().__init__(semantics, semantics)

    def _atom(self, atom: Atom, side: int) -> int:
        if side == 0:
            literal = self._new_variable()
            if isinstance(atom, Compare):
                self._compared[atom] = literal
            return literal
        if atom not in self._without:
            self._without[atom] = self._new_variable()
        return self.all_of([self._atom_literal(atom, 0), -self._without[atom]])

    def needed(
        self,
        conditions: Iterable[Formula],
        slots: Slots,
        known: Collection[Atom],
        form: Canonical,
    ) -> frozenset[Atom]:
        """The atoms that are needed for one of the conditions, except those already `known` to be needed.

        Of atoms that entail each other, the first counts for all, as in the minimal sets of `form`.
        """
        literal_pairs = [(self.literal(formula, 0), self.literal(formula, 1)) for formula in conditions]
        entailments = list(form.entailments(tuple(self._without)))
        equal = {(a, b) for (a, *more), b in entailments if not more} & {(b, a) for (a, *_), b in entailments}
        same = {b: a for a, b in sorted(equal, key=lambda pair: form.order(pair[0]), reverse=True)}
        same = {b: a for b, a in same.items() if form.order(a) < form.order(b)}
        for atom, first in same.items():
            self._add_clause([-self._without[first], self._without[atom]])
            self._add_clause([self._without[first], -self._without[atom]])
        for premises, conclusion in entailments:
            negated_premises = [-self._atom_literal(atom, 0) for atom in premises]
            self._add_clause([*negated_premises, self._atom_literal(conclusion, 0)])
            if not (len(premises) == 1 and (premises[0], conclusion) in equal):
                self._add_clause([*negated_premises, -self._without[conclusion]])
        removable = [self._without[atom] for atom in self._without if atom not in known and atom not in same]
        for atom, literal in self._without.items():
            self._add_clause([-literal, -self.true if atom in known else self._atom_literal(atom, 0)])
        self._at_most_one(removable)
        found: set[Atom] = set()
        atoms_by_literal = {literal: atom for atom, literal in self._without.items()}
        for full, without in literal_pairs:
            while self.possible([full, -without, self.requests(slots)]):
                removed = next(literal for literal in self._true_literals() if literal in atoms_by_literal)
                found.add(atoms_by_literal[removed])
                self._add_clause([-removed])
        return frozenset(found)

    def _at_most_one(self, literals: list[int]) -> None:
        any_before = -self.true
        for literal in literals:
            self._add_clause([-any_before, -literal])
            any_so_far = self._new_variable()
            self._add_clause([-any_before, any_so_far])
            self._add_clause([-literal, any_so_far])
            any_before = any_so_far


class FullAccess(Solver):
    """The solver for a caller who holds every atom, with any values of attributes."""

    def _atom(self, atom: Atom, side: int) -> int:
        return super()._atom(atom, side) if isinstance(atom, Compare) else self.true


class NoAccess(Solver):
    """The solver for a caller who holds no atom."""

    def _atom(self, atom: Atom, side: int) -> int:
        del atom, side
        return -self.true
