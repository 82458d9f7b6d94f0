"""Some minimal sets of a condition that has too many to list: the same ones on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, assert_never

from privtab.ir.formula import leaves
from privtab.ir.nodes import And, ByType, Can, Formula, Has, Holds, Member, Or, Owner, Self, ServiceAdmin, When

if TYPE_CHECKING:
    from privtab.ir.canonical import AtomSet, Canonical, Leaf

LISTED = 25
"""How many minimal sets are listed of a condition that has too many."""


def few(form: Canonical, formula: Formula, flags: frozenset[str], types: Mapping[str, str]) -> frozenset[AtomSet]:
    """At most `LISTED` minimal sets of a condition; arguments as of `Canonical.minimal_sets`."""
    return _Few(form, formula, flags, types).sets()


class _Few:
    """Of each part the smallest sets are kept; what comes out suffices, and is weakened as far as it still does."""

    def __init__(self, form: Canonical, formula: Formula, flags: frozenset[str], types: Mapping[str, str]) -> None:
        self._form = form
        self._formula = formula
        self._flags = flags
        self._types = types

    def sets(self) -> frozenset[AtomSet]:
        return frozenset(map(self._weakest, self._some(self._formula)))

    def _some(self, formula: Formula) -> list[AtomSet]:
        match formula:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
                return [frozenset({formula})]
            case And():
                joined: list[AtomSet] = [frozenset()]
                for part in formula.parts:
                    right = self._some(part)
                    # The smallest sets of both sides come first, so that the first pairs hold the smallest ones.
                    pairs = sorted((i + j, i, j) for i in range(len(joined)) for j in range(len(right)))
                    joined = self._first(joined[i] | right[j] for _, i, j in islice(pairs, 4 * LISTED))
                return joined
            case Or():
                return self._first(atoms for part in formula.parts for atoms in self._some(part))
            case When():
                return self._some(formula.body) if formula.flag in self._flags else [frozenset()]
            case Can():
                key = formula, self._flags
                if key not in self._form.few:
                    self._form.few[key] = self._some(self._form.meant(formula))
                return self._form.few[key]
            case ByType():
                if formula.slot not in self._types:
                    return [frozenset({formula})]
                case_ = dict(formula.cases).get(self._types[formula.slot])
                return [] if case_ is None else self._some(case_)
            case _:
                assert_never(formula)

    def _first(self, sets: Iterable[AtomSet]) -> list[AtomSet]:
        """The smallest sets, in the one order that outputs use."""
        order = self._form.order
        rows = sorted({self._form.reduce(atoms) for atoms in sets}, key=lambda s: (len(s), sorted(map(order, s))))
        return rows[:LISTED]

    def _weakest(self, atoms: AtomSet) -> AtomSet:
        """A minimal set for which these atoms suffice: what they entail takes their place as long as that is enough."""
        held = atoms | {atom for atom in self._asked if self._form.entails(atoms, atom)}
        kept: set[Leaf] = set()
        before = None
        while held != before:
            before = held
            for atom in sorted(held - kept, key=self._form.order):
                rest = held - {atom}
                if self._form.entails(rest, atom):
                    continue
                if self._holds(self._formula, rest, {}):
                    held = rest
                else:
                    kept.add(atom)
        return self._form.reduce(held)

    @cached_property
    def _asked(self) -> AtomSet:
        return frozenset(leaves(self._form.program, self._formula))

    def _holds(self, formula: Formula, held: AtomSet, known: dict[Can, bool]) -> bool:
        """Whether a set that has all that it entails fulfils a condition."""
        match formula:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
                return formula in held
            case And():
                return all(self._holds(part, held, known) for part in formula.parts)
            case Or():
                return any(self._holds(part, held, known) for part in formula.parts)
            case When():
                return formula.flag not in self._flags or self._holds(formula.body, held, known)
            case Can():
                if formula not in known:
                    known[formula] = self._holds(self._form.meant(formula), held, known)
                return known[formula]
            case ByType():
                if formula.slot not in self._types:
                    return formula in held
                case_ = dict(formula.cases).get(self._types[formula.slot])
                return case_ is not None and self._holds(case_, held, known)
            case _:
                assert_never(formula)
