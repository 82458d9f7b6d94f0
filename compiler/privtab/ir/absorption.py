"""Absorption: an alternative that implies another adds nothing, and neither does a conjunct that another implies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from privtab.ir.algebra import Rebuilder
from privtab.ir.formula import ATOMS, conjunction, disjunction
from privtab.ir.nodes import And, Atom, Formula, Or

if TYPE_CHECKING:
    from privtab.ir.canonical import Canonical


def superfluous_atoms(form: Canonical, atoms: Collection[Atom], *, every: bool) -> frozenset[Atom]:
    """Atoms that can be dropped from a conjunction (`every`) or a disjunction of distinct atoms without changing it."""
    dropped: set[Atom] = set()
    for body, head in form.entailments(atoms):
        # Of atoms that entail each other, one stays: what is dropped already entails nothing, and excuses nothing.
        if every and dropped.isdisjoint(body):
            dropped.add(head)
        elif not every and len(body) == 1 and head not in dropped:
            dropped.add(body[0])
    return frozenset(dropped)


def absorbed(form: Canonical, formula: Formula) -> Formula:
    """The same condition, flattened, without the atoms that another one beside them makes superfluous."""
    return _Absorbed(form).fold(formula)


class _Absorbed(Rebuilder):
    def __init__(self, form: Canonical) -> None:
        self._form = form

    def all_of(self, values: Iterable[Formula]) -> Formula:
        return self._without_absorbed(conjunction(*values))

    def any_of(self, values: Iterable[Formula]) -> Formula:
        return self._without_absorbed(disjunction(*values))

    def _without_absorbed(self, formula: Formula) -> Formula:
        if not isinstance(formula, And | Or):
            return formula
        atoms = [part for part in formula.parts if isinstance(part, ATOMS)]
        superfluous = superfluous_atoms(self._form, atoms, every=isinstance(formula, And))
        if not superfluous:
            return formula
        join = conjunction if isinstance(formula, And) else disjunction
        return join(*(part for part in formula.parts if part not in superfluous))
