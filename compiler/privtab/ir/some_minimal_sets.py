"""A selection of minimal sets for a condition with too many to list, the same on every machine, after what adds nothing is dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import islice

from privtab.base.errors import Undecided
from privtab.ir.algebra import Rebuilder
from privtab.ir.canonical import AtomSet, Canonical, Leaf, Listing
from privtab.ir.formula import RequestAlgebra, Truth, reached_atoms
from privtab.ir.nodes import And, Atom, Atomic, ByType, Can, Formula, Or

LISTED = 25
"""How many minimal sets are listed for a condition with too many."""


def minimal_listing(
    form: Canonical,
    formula: Formula,
    flags: frozenset[str] = frozenset(),
    types: Mapping[str, str] | None = None,
    *,
    sufficient: AtomSet | None = None,
) -> Listing:
    """The minimal sets of a formula, or some of them if they take more than `canonical.STEPS`; none if comparisons may complete each other.

    `sufficient`: atoms that suffice for the formula; where not all sets are listed, the first consists of some of these.

    Example:
        sets, complete = minimal_listing(canonical_form(program), rule.item_condition)
    """
    key = formula, flags, tuple((types or {}).items())
    try:
        if not form.partial_listings or key not in form.partial_listings:
            return Listing(form.minimal_sets(formula, flags, types))
    except Undecided:
        unknown = form.may_be_completed(reached_atoms(form.program, formula))
        some = () if unknown else some_minimal_sets(form, formula, flags, types or {})
        form.partial_listings[key] = form.ordered(some)
    listed = form.partial_listings[key]
    if sufficient is not None:
        listed = (*form.ordered([_SomeSets(form, formula, flags, types or {}).weakest(sufficient)]), *listed)
    return Listing(listed, complete=False)


def some_minimal_sets(
    form: Canonical, formula: Formula, flags: frozenset[str], types: Mapping[str, str]
) -> frozenset[AtomSet]:
    """At most `LISTED` minimal sets of a condition; arguments as for `Canonical.minimal_sets`."""
    return _SomeSets(form, formula, flags, types).sets()


class _SomeSets(RequestAlgebra[list[AtomSet]]):
    """Keeps the smallest sets of each part. The resulting sets suffice, and are weakened until they are minimal."""

    def __init__(self, form: Canonical, formula: Formula, flags: frozenset[str], types: Mapping[str, str]) -> None:
        super().__init__(form.program, flags, types)
        self._form = form
        self._formula = formula
        self._flags = flags
        self._cache: dict[AtomSet, bool] = {}

    def sets(self) -> frozenset[AtomSet]:
        return frozenset(map(self.weakest, self.fold(self._formula)))

    def atom(self, atom: Atom) -> list[AtomSet]:
        return [frozenset({atom})]

    def all_of(self, values: Iterable[list[AtomSet]]) -> list[AtomSet]:
        joined: list[AtomSet] = [frozenset()]
        for right in values:
            # Both sides are sorted by size, so that the first pairs combine the smallest sets.
            pairs = sorted((i + j, i, j) for i in range(len(joined)) for j in range(len(right)))
            united = (joined[i] | right[j] for _, i, j in pairs)
            joined = self._smallest(islice(filter(self._form.possible, united), 4 * LISTED))
        return joined

    def any_of(self, values: Iterable[list[AtomSet]]) -> list[AtomSet]:
        return self._smallest(atoms for sets in values for atoms in sets)

    def can(self, can: Can) -> list[AtomSet]:
        key = can, self._flags
        if key not in self._form.some_sets_of_can:
            self._form.some_sets_of_can[key] = super().referred(can)
        return self._form.some_sets_of_can[key]

    def by_type(self, choice: ByType) -> list[AtomSet]:
        return super().by_type(choice) if choice.slot in self.types else [frozenset({choice})]

    def _smallest(self, sets: Iterable[AtomSet]) -> list[AtomSet]:
        """The smallest sets, in the order that outputs use."""
        order = self._form.order
        rows = sorted({self._form.reduce(atoms) for atoms in sets}, key=lambda s: (len(s), sorted(map(order, s))))
        return rows[:LISTED]

    def weakest(self, atoms: AtomSet) -> AtomSet:
        """A minimal set for which these atoms suffice: weaken them to what they entail as long as that still suffices."""
        sufficient = atoms
        if not self._form.independent:
            sufficient |= {atom for atom in self._leaves if self._form.entails(atoms, atom)}
        needed: set[Leaf] = set()
        previous = None
        while sufficient != previous:
            previous = sufficient
            for atom in sorted(sufficient - needed, key=self._form.order):
                rest = sufficient - {atom}
                if self._form.entails(rest, atom):
                    continue
                if self._fulfils(rest):
                    sufficient = rest
                else:
                    needed.add(atom)
        return self._form.reduce(sufficient)

    def _fulfils(self, atoms: AtomSet) -> bool:
        """Return whether a set fulfils the condition; small sets have the same parts, among them the empty one."""
        if atoms not in self._cache:
            self._cache[atoms] = _Holds(self._form, self._flags, self.types, atoms).fold(self._formula)
        return self._cache[atoms]

    @cached_property
    def _leaves(self) -> AtomSet:
        return frozenset(reached_atoms(self._form.program, self._formula))


class _Holds(Truth):
    """Evaluates whether a set of atoms that is closed under entailment satisfies a condition."""

    def __init__(self, form: Canonical, flags: frozenset[str], types: Mapping[str, str], atoms: AtomSet) -> None:
        super().__init__(form.program, flags, types, atoms.__contains__)
        self._form = form
        self._atoms = atoms

    def by_type(self, choice: ByType) -> bool:
        return super().by_type(choice) if choice.slot in self.types else choice in self._atoms


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
        return self._without_absorbed(And.of(*values))

    def any_of(self, values: Iterable[Formula]) -> Formula:
        return self._without_absorbed(Or.of(*values))

    def _without_absorbed(self, formula: Formula) -> Formula:
        if not isinstance(formula, And | Or):
            return formula
        atoms = [part for part in formula.parts if isinstance(part, Atomic)]
        superfluous = superfluous_atoms(self._form, atoms, every=isinstance(formula, And))
        if not superfluous:
            return formula
        join = And.of if isinstance(formula, And) else Or.of
        return join(*(part for part in formula.parts if part not in superfluous))
