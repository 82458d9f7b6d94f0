"""Which comparisons of attributes callers of one request fulfil, and values with which they do.

A comparison of one request names its entities (`ways.py`). Single values, `color (item:s/a) = red`, are comparisons too:
callers with each of them show what conditions do with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from privtab.attributes import Scalar, Value
from privtab.ir.comparisons import Comparisons
from privtab.ir.nodes import Compare, Program, Term
from privtab.request import Request
from privtab.scenarios.callers import HeldAtom, HeldSet

Values: TypeAlias = "Mapping[Term, Value | None]"
"""The value of each attribute that a request is about; None where it is absent."""
MAX_SINGLE = 32
"""The limit on single values that are tried for one request."""


class ComparedAttributes:
    """The comparisons that a request is about."""

    def __init__(self, program: Program, request: Request, comparisons: Iterable[Compare]) -> None:
        """Comparisons of attributes that neither the state nor this request can give never hold, so they are left out."""
        keys = set(map(str, (request.resource, *request.with_.values())))

        def has_value(term: Term) -> bool:
            declared = program.attribute(term)
            in_state = declared is not None and "state" in declared.origins
            return in_state or term.target is None or term.target.slot in keys

        comparisons = [compare for compare in comparisons if all(map(has_value, compare.terms))]
        self._theory = Comparisons(program)
        self.atoms = tuple(sorted({HeldAtom("compare", compare=compare) for compare in comparisons}, key=str))
        known = [atom.compare for atom in self.atoms if atom.compare is not None]
        self._terms = tuple(dict.fromkeys(term for compare in known for term in compare.terms))
        single = (HeldAtom("compare", compare=compare) for compare in self._single(known))
        self.single = tuple(islice((atom for atom in dict.fromkeys(single) if atom not in self.atoms), MAX_SINGLE))
        self._known = {atom.compare for atom in (*self.atoms, *self.single)}

    def fewest(self, atoms: HeldSet, lacking: HeldSet = frozenset()) -> HeldSet | None:
        """Some atoms, with the comparisons that hold where as few as possible do besides; None if no values do that. Raises Undecided."""
        true, false = _comparisons(atoms), set(_comparisons(lacking))
        if not self._known.issuperset(true) or self._theory.values(true, false) is None:
            return None
        for atom in self.atoms:
            if atom.compare is not None and atom.compare not in true | false:
                (false if self._theory.possible(true, {*false, atom.compare}) else true).add(atom.compare)
        return atoms | {atom for atom in self.atoms if atom.compare in true}

    def most(self, atoms: HeldSet, lacking: HeldSet) -> Iterator[HeldSet]:
        """Some atoms that compare nothing, with as many comparisons as can hold where some do not: each that can is in one of the sets."""
        listed = [atom for atom in (*self.atoms, *self.single) if atom not in lacking]
        false, seen = _comparisons(lacking), set[HeldSet]()
        for number in range(max(1, len(listed))):
            chosen = frozenset(atom for atom in atoms if atom.compare is None)
            for atom in (*listed[number:], *listed[:number]):
                if self._theory.possible(_comparisons(chosen | {atom}), false):
                    chosen |= {atom}
            if chosen not in seen:
                seen.add(chosen)
                yield chosen

    def values(self, atoms: HeldSet) -> Values:
        """Values with which the comparisons among some atoms hold, and no others that the request is about. Raises Undecided."""
        true = _comparisons(atoms)
        false = {atom.compare for atom in self.atoms if atom.compare is not None} - true
        found = self._theory.values(true, false)
        assert found is not None
        return {term: found.get(self._theory.term(term)) for term in self._terms}

    def _single(self, comparisons: Iterable[Compare]) -> Iterator[Compare]:
        """Comparisons that say one value, or how two integers are ordered."""
        for compare in comparisons:
            constants = compare.right if isinstance(compare.right, tuple) else ()
            for term in compare.terms:
                yield from (Compare(left=term, operator="=", right=(v,)) for v in self._values(term, constants))
            if isinstance(compare.right, Term) and compare.operator in ("<", "<=", ">", ">="):
                yield from (replace(compare, operator=operator) for operator in ("<", "=", ">"))

    def _values(self, term: Term, constants: tuple[Scalar, ...]) -> list[Scalar]:
        """The values of an attribute that tell comparisons with some constants apart."""
        type_ = self._theory.type_of(term)
        match type_.type:
            case "bool":
                return [True, False]
            case "enum":
                return [*type_.values]
            case "integer":
                near = {int(constant) + step for constant in constants for step in (-1, 0, 1)}
                return [number for number in sorted(near) if type_.fits(number)]
            case "text":
                # Another one for each attribute, so that two can be present and not the same.
                return [*constants, f"other {self._terms.index(term) + 1}"]
            case _:
                return []


def _comparisons(atoms: HeldSet) -> set[Compare]:
    return {atom.compare for atom in atoms if atom.compare is not None}
