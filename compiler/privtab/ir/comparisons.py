"""Decide which comparisons of attributes can hold together: values that make some comparisons true and others false, if there are any.

Each attribute has a value of its type, or none. Finitely many values represent all others (docs/decisions/0241):

* enumerations and truth values: each of them;
* texts: the constants, the words of sets, and a text of its own for each attribute;
* integers: the numbers around each constant and each bound, as many as there are attributes;
* sets: each word is in or out on its own.

The search assigns one attribute after another and gives up (`Undecided`) after `STEPS` assignments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from privtab.base.attributes import Attribute, AttributeValue, Scalar, holds
from privtab.base.errors import Undecided
from privtab.ir.nodes import RESOURCE, Compare, Program, Term

STEPS = 20_000
"""Limit on the assignments of one search."""
Values: TypeAlias = Mapping[Term, AttributeValue]
"""The values of attributes; those without one are left out."""


class Comparisons:
    """Decides questions about the comparisons of one policy, or of two.

    Example:
        values = Comparisons(program).values(true={compare})
    """

    def __init__(self, *programs: Program) -> None:
        """`programs`: the policy, or two that are compared with each other."""
        self._programs = programs
        self._shared = programs[0].shared.intersection(*(program.shared for program in programs))
        self._known: dict[tuple[frozenset[Compare], frozenset[Compare]], Values | None] = {}

    def values(self, true: Iterable[Compare], false: Iterable[Compare] = ()) -> Values | None:
        """Values, few of them, under which some comparisons hold and others do not; None if there are none. Raises Undecided."""
        key = frozenset(true), frozenset(false)
        if key not in self._known:
            self._known[key] = self._found(*key)
        return self._known[key]

    def _found(self, true: frozenset[Compare], false: frozenset[Compare]) -> Values | None:
        """As `values`: attributes that no comparison connects are looked at on their own."""
        found: dict[Term, AttributeValue] = {}
        left = {compare: frozenset(map(self.term, compare.terms)) for compare in (*true, *false)}
        # Where there is a default, a comparison can hold although no value is chosen.
        by_default = (c for c in false if any(self.type_of(self.term(term)).default is not None for term in c.terms))
        for first in (*sorted(true, key=repr), *sorted(by_default, key=repr)):
            if first not in left:
                continue
            part, terms = {first}, left.pop(first)
            while near := [compare for compare, own in left.items() if own & terms]:
                part.update(near)
                terms = terms.union(*(left.pop(compare) for compare in near))
            values = _Search(self, true & part, false & part).found()
            if values is None:
                return None
            found |= values
        return found

    def possible(self, true: Iterable[Compare], false: Iterable[Compare] = ()) -> bool:
        """Return whether some comparisons can hold while others do not. If that is not decided, they can."""
        try:
            return self.values(true, false) is not None
        except Undecided:
            return True

    def conflict(self, true: Iterable[Compare], false: Iterable[Compare]) -> tuple[list[Compare], list[Compare]] | None:
        """Some of them, of which none can be left out, that cannot hold and not hold like that; None if all can. Raises Undecided."""
        kept_true, kept_false = list(true), list(false)
        if self.values(kept_true, kept_false) is not None:
            return None
        for remaining in (kept_false, kept_true):
            for compare in tuple(remaining):
                remaining.remove(compare)
                if self.values(kept_true, kept_false) is not None:
                    remaining.append(compare)
        return kept_true, kept_false

    def follows(self, premises: Iterable[Compare], conclusion: Compare) -> bool:
        """Return whether a comparison holds wherever the others do."""
        return not self.possible(premises, [conclusion])

    def domains(
        self, compares: Iterable[Compare]
    ) -> tuple[Mapping[Term, Attribute], Mapping[Term, list[Scalar | None]]]:
        """The types of the attributes that are compared, and the values that represent all others of those that are no sets; None for absence."""
        search = _Search(self, frozenset(compares), frozenset())
        return search.types, search.domains

    def term(self, term: Term) -> Term:
        """The term, of which an entity that all objects of a request share has only one."""
        if term.target is not None and term.target.type in self._shared:
            return replace(term, target=replace(term.target, slot=RESOURCE))
        return term

    def type_of(self, term: Term) -> Attribute:
        """The declared type of an attribute. Raises Undecided if two policies declare different ones."""
        types = {type_ for program in self._programs if (type_ := program.attribute(term)) is not None}
        if len(types) != 1:
            raise Undecided(f"not decided: the policies declare `{term.attribute}` differently")
        return types.pop()


class _Search:
    """One search for values."""

    def __init__(self, theory: Comparisons, true: frozenset[Compare], false: frozenset[Compare]) -> None:
        self._literals = [
            (_Bound.of(theory, c), truth) for truth, listed in ((True, true), (False, false)) for c in listed
        ]
        self._literals.sort(key=lambda literal: (not literal[1], repr(literal[0].compare)))
        self.types: dict[Term, Attribute] = {}
        for bound, _ in self._literals:
            for term in bound.terms:
                self.types.setdefault(term, theory.type_of(term))
        self._scalars = [term for term, type_ in self.types.items() if type_.type != "set"]
        self.domains = {term: self._domain(term) for term in self._scalars}
        # Comparisons of one scalar with constants or with a set reduce its domain; the rest is checked when both are known.
        self._last: dict[Term, list[tuple[_Bound, bool]]] = {term: [] for term in self._scalars}
        for literal in self._literals:
            terms = [term for term in literal[0].terms if term in self._last]
            if terms:
                self._last[max(terms, key=self._scalars.index)].append(literal)
        self._steps = STEPS

    def found(self) -> Values | None:
        chosen: dict[Term, AttributeValue | None] = {}
        return self._complete(chosen) if self._assign(0, chosen) else None

    def _assign(self, number: int, chosen: dict[Term, AttributeValue | None]) -> bool:
        if number == len(self._scalars):
            return self._words(chosen) is not None
        term = self._scalars[number]
        for value in self.domains[term]:
            self._steps -= 1
            if self._steps < 0:
                raise Undecided(f"not decided: comparisons of attributes take more than {STEPS:,} steps")
            chosen[term] = value
            admitted = all(bound.admits(chosen, self.types, truth=truth) for bound, truth in self._last[term])
            if admitted and self._assign(number + 1, chosen):
                return True
        del chosen[term]
        return False

    def _words(self, chosen: Mapping[Term, AttributeValue | None]) -> dict[Term, set[str]] | None:
        """The words that each set must have; None if it must have and lack one word."""
        required: dict[Term, set[str]] = {term: set() for term, type_ in self.types.items() if type_.type == "set"}
        for bound, truth in self._literals:
            if bound.set is not None and truth:
                required[bound.set].add(str(bound.word(chosen)))
        for bound, truth in self._literals:
            if bound.set is not None and not truth and bound.word(chosen) in required[bound.set]:
                return None
        return required

    def _complete(self, chosen: Mapping[Term, AttributeValue | None]) -> Values:
        words = {term: sorted(words) for term, words in (self._words(chosen) or {}).items() if words}
        return {term: value for term, value in chosen.items() if value is not None} | words

    def _domain(self, term: Term) -> list[Scalar | None]:
        """The values to try: none of them first, or the default, which stands for none."""
        constants = {constant for bound, _ in self._literals for constant in bound.constants}
        type_ = self.types[term]
        if type_.default is not None:
            constants.add(type_.default)
        found = type_.representatives(constants, self.types.values())
        return [None, *found] if type_.default is None else sorted(found, key=lambda value: value != type_.default)


class _Bound:
    """A comparison with its terms."""

    def __init__(self, compare: Compare, left: Term, right: Term | None, right_type: Attribute | None) -> None:
        self.compare = compare
        self.left = left
        self.right = right
        self.constants: tuple[Scalar, ...] = compare.right if isinstance(compare.right, tuple) else ()
        self.set = right if right_type is not None and right_type.type == "set" else None
        if compare.operator == "contains":
            self.set = left
        self.terms = (left,) if right is None else (left, right)

    @classmethod
    def of(cls, theory: Comparisons, compare: Compare) -> _Bound:
        right = theory.term(compare.right) if isinstance(compare.right, Term) else None
        return cls(compare, theory.term(compare.left), right, None if right is None else theory.type_of(right))

    def word(self, chosen: Mapping[Term, AttributeValue | None]) -> object:
        """The word that is in the set, or not."""
        return self.constants[0] if self.compare.operator == "contains" else chosen[self.left]

    def admits(
        self, chosen: Mapping[Term, AttributeValue | None], types: Mapping[Term, Attribute], *, truth: bool
    ) -> bool:
        """Return whether the chosen values of scalars leave it possible that the comparison is true, or false."""
        left = chosen[self.left]
        if self.set is not None:
            return not truth or left in types[self.set].values
        if left is None:
            return not truth
        if self.right is None:
            result = (
                left in self.constants
                if self.compare.operator == "in"
                else holds(left, self.compare.operator, self.constants[0])
            )
        else:
            right = chosen[self.right]
            result = right is not None and holds(left, self.compare.operator, right)
        return result == truth
