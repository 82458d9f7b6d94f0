"""The minimal set that allows a caller, for conditions with too many minimal sets to list."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.ir.canonical import Leaf, Listing, atom_of, canonical
from privtab.ir.formula import RequestAlgebra
from privtab.ir.nodes import Atom, Formula, Rule
from privtab.ir.some_minimal_sets import minimal_listing, weakest
from privtab.reference.evaluate import EvaluationContext


def listing(context: EvaluationContext, rule: Rule, condition: Formula) -> Listing:
    """The minimal sets of a rule's condition, for the flags and types of a request.

    If not all are listed, one that the caller holds comes first, if there is any.
    """
    form = canonical(context.program)
    types = {slot.name: context.types[slot.name] for slot in rule.withs}
    found = minimal_listing(form, condition, context.flags, types)
    if found.complete or any(all(map(context.holds, map(atom_of, atoms))) for atoms in found.sets):
        return found
    sufficient = _SufficientAtoms(context).fold(condition)
    if sufficient is None:
        return found
    (first,) = form.ordered([weakest(form, condition, context.flags, types, sufficient)])
    return Listing((first, *found.sets), complete=False)


class _SufficientAtoms(RequestAlgebra["frozenset[Leaf] | None"]):
    """Atoms that the caller holds and that suffice for a condition; None if they do not hold enough."""

    def __init__(self, context: EvaluationContext) -> None:
        super().__init__(context.program, context.flags, context.types)
        self._context = context

    def atom(self, atom: Atom) -> frozenset[Leaf] | None:
        """See `Algebra.atom`."""
        return frozenset((atom,)) if self._context.holds(atom) else None

    def all_of(self, values: Iterable[frozenset[Leaf] | None]) -> frozenset[Leaf] | None:
        """See `Algebra.all_of`."""
        atoms: set[Leaf] = set()
        for value in values:
            if value is None:
                return None
            atoms |= value
        return frozenset(atoms)

    def any_of(self, values: Iterable[frozenset[Leaf] | None]) -> frozenset[Leaf] | None:
        """See `Algebra.any_of`."""
        return next((value for value in values if value is not None), None)
