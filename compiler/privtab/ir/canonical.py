"""The canonical form of a condition: its minimal sets.

A condition is monotone, so it is determined by the antichain of the smallest sets of atoms that suffice for it. Atoms are not
independent; under the semantics of the file, a set of atoms *entails* an atom if every state that gives the set gives the atom:

* an atom entails itself;
* with inheritance and without denials, a privilege on an object entails it on everything below;
* with inheritance and denials it does not (allowed above, denied below), but the privilege above *and* below an object entails
  it on that object: the grant above is inherited, and the privilege below shows that no denial applies on the way;
* an owner has each privilege that ownership confers on what they own and, with inheritance, below it, whatever is denied.

The last two do not combine: if ownership confers the privilege, the lower one may come from ownership alone.

Comparisons of attributes entail each other by the values that make them true, sets whose comparisons contradict each other are left
out, and `prime_implicants` joins sets whose comparisons complete each other. So equal conditions have equal minimal sets.

Where one privilege implies another, and every grant that gives the first gives the second, the first counts as a grant of the
second: alone without denials, and with denials together with the second below.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

from privtab.base.caching import once
from privtab.base.errors import Undecided
from privtab.ir import nodes as ir
from privtab.ir import shapes
from privtab.ir.comparisons import Comparisons
from privtab.ir.facts import FactSemantics
from privtab.ir.formula import (
    LEVELS_ABOVE,
    LEVELS_AROUND,
    LEVELS_SAYING,
    RequestAlgebra,
    compared_terms,
    level_text,
    located,
    move_to_slot,
    on_each_level,
    on_entity,
    resolve_can,
    uses_below,
    with_targets,
)
from privtab.ir.prime_implicants import completed, connected

Leaf: TypeAlias = shapes.Leaf
"""A member of a minimal set: `sets: tuple[tuple[Leaf, ...], ...]`."""
AtomSet: TypeAlias = frozenset[Leaf]
MinimalSets: TypeAlias = tuple[tuple[Leaf, ...], ...]

STEPS = 20_000
"""Limit on the pairs of sets that are compared for one condition: some hundredths of a second."""


class Listing(NamedTuple):
    """The minimal sets of a condition, or some of them if there are too many.

    >>> Listing(()).complete
    True
    """

    sets: MinimalSets
    complete: bool = True


class Canonical:
    """Computes minimal sets of a program's conditions; the sets of a `can` are computed once."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._position = {name: i for i, name in enumerate(program.entities)}
        self._chains = program.chains
        self._shared = program.shared
        self._restated = program.nests or (bool(self._shared) and len(program.slots) > 1)
        """Whether atoms may say of the same entity, or of another level, what others of their kind do."""
        self._owner_privileges = program.owner_privileges
        self._inherited = program.inherited
        self._denies = program.semantics.deny == "overrides"
        self._implied = program.implies
        self._below = uses_below(program)
        self._compares = bool(compared_terms(program))
        self.comparisons = Comparisons(program)
        self._facts = FactSemantics(program)
        self._orders: dict[Leaf, tuple[int, str, int, str]] = {}
        self._minimal_sets: dict[tuple[ir.Formula, frozenset[str], tuple[tuple[str, str], ...]], MinimalSets] = {}
        self._shapes = shapes.shapes(program)
        """Kept, since their numbers are keys below: shapes that are computed again have other numbers."""
        self._numbers_by_shape: dict[Hashable, tuple[tuple[int, ...], ...]] = {}
        """Minimal sets as the numbers of leaves."""
        self._sets_of_can: dict[tuple[str, str, frozenset[str]], tuple[frozenset[AtomSet], int]] = {}
        self._steps_left = STEPS
        self._too_many: dict[tuple[str, str, frozenset[str]], int] = {}
        self.partial_listings: dict[tuple[ir.Formula, frozenset[str], tuple[tuple[str, str], ...]], MinimalSets] = {}
        """The listed minimal sets of conditions that have too many."""
        self.some_sets_of_can: dict[tuple[ir.Can, frozenset[str]], list[AtomSet]] = {}
        """Some minimal sets of the condition that a `can` refers to, if there are too many."""

    def minimal_sets(
        self, formula: ir.Formula, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
    ) -> MinimalSets:
        """The minimal sets of a formula, in canonical order. Raises Undecided if they take more than `STEPS`.

        `flags`: those that the request sets. `types`: the type of the object in each `with` slot that allows several.
        """
        key = formula, flags, tuple((types or {}).items())
        found = self._minimal_sets.get(key)
        if found is None:
            found = self._minimal_sets[key] = self._of_shape(formula, flags, types or {})
        return found

    def located(self, sets: MinimalSets, levels: Mapping[str, int]) -> MinimalSets:
        """Minimal sets with targets of single levels, for one request: each level for `every`, and a set for each level for `any`.

        The `any` of one set are all taken at the same distance from the nearest, so a set with several is not listed in full.
        `levels`: the number of levels on the path of the object in each slot.
        """
        if not self.program.nested_on:
            return sets
        found: dict[tuple[Leaf, ...], None] = {}
        for atoms in sets:
            targets = [target for atom in atoms if isinstance(atom, ir.Atomic) and (target := atom.several)]
            choices = [levels[target.slot] for target in targets if target.level == "any"]
            for distance in range(max(choices, default=1)):
                found[tuple(at for atom in atoms for at in self._located(atom, levels, distance))] = None
        return tuple(found)

    def _located(self, atom: Leaf, levels: Mapping[str, int], distance: int) -> Iterator[Leaf]:
        if isinstance(atom, ir.ByType):
            yield atom
            return
        whole = atom.several
        each = (atom,) if whole is None else on_each_level(self.program, atom, levels[whole.slot])
        if whole is not None and whole.level == "any":
            each = (each[min(distance, len(each) - 1)],)
        for one in each:
            yield with_targets(one, lambda target: located(self.program, target, levels[target.slot])[0])

    def _of_shape(self, formula: ir.Formula, flags: frozenset[str], types: Mapping[str, str]) -> MinimalSets:
        """As `minimal_sets`: computed once for all conditions of the same shape whose atoms have the same order."""
        shape = self._shapes.of([formula], {slot: [type_] for slot, type_ in types.items()})
        if self._compares and any(isinstance(leaf, ir.Compare) for leaf in shape.leaves):
            self._steps_left = STEPS
            return self.ordered(self._completed(self._sets(formula, flags, types)))
        orders = list(map(self.order, shape.leaves))
        key = shape.number, tuple(sorted(range(len(orders)), key=orders.__getitem__)), flags
        if key not in self._numbers_by_shape:
            self._steps_left = STEPS
            sets = self.ordered(self._sets(formula, flags, types))
            numbers = {leaf: number for number, leaf in enumerate(shape.leaves)}
            self._numbers_by_shape[key] = tuple(tuple(numbers[leaf] for leaf in atoms) for atoms in sets)
        leaf = shape.leaves.__getitem__
        return tuple(tuple(map(leaf, numbers)) for numbers in self._numbers_by_shape[key])

    def _completed(self, sets: frozenset[AtomSet]) -> frozenset[AtomSet]:
        """Sets that suffice for a condition as those that do by the values which attributes can have."""

        def joined(atoms: AtomSet) -> AtomSet | None:
            return self.reduce(atoms) if self.possible(atoms) else None

        for _ in range(2):  # the sets that one part joins are to be written in one way as to the others
            for part in connected(self.comparisons, sorted(frozenset().union(*sets), key=self.order)):
                self._steps_left = STEPS
                in_order = sorted(sets, key=self._rank)
                found = completed(in_order, part, self.comparisons, joined, self.entails)
                sets = self.antichain(map(self.reduce, found))
        return sets

    def may_be_completed(self, atoms: Iterable[Leaf]) -> bool:
        """Return whether some of the atoms are comparisons of one attribute, so that sets of them may be joined."""
        return any(len(part) > 1 for part in connected(self.comparisons, atoms))

    def ordered(self, sets: Iterable[AtomSet]) -> MinimalSets:
        """Sort sets, and the atoms in each, into the order that every output uses."""
        rows = [tuple(sorted(s, key=self.order)) for s in sets]
        return tuple(sorted(rows, key=lambda row: (len(row), [self.order(a) for a in row])))

    def order(self, atom: Leaf) -> tuple[int, str, int, str]:
        """Sort key: membership first, then privileges and roles, then ownership; from the root down."""
        found = self._orders.get(atom)
        if found is None:
            found = self._orders[atom] = self._order(atom)
        return found

    def _order(self, atom: Leaf) -> tuple[int, str, int, str]:
        if isinstance(atom, ir.ByType):
            return (6, atom.slot, 0, f"{atom.text}\0{atom.cases}")  # attributes of several types have one text
        if not isinstance(atom, ir.OnTarget):
            return (atom.kind.rank, "", 0, repr(atom))
        target, below = atom.target, isinstance(atom, ir.Below)
        text = " ".join((*atom.names.values(), *(["or below"] if below else [])))
        return (atom.kind.rank, target.slot, self._position[target.type], f"{text}{level_text(target)}")

    @property
    def independent(self) -> bool:
        """True if no atom entails another."""
        return not (self._inherited or self._owner_privileges or self._ambiguous)

    @property
    def _ambiguous(self) -> bool:
        """True if different reduced sets may suffice for each other."""
        return self._implied or self._below or self._compares or self._restated

    def entails(self, atoms: AtomSet, atom: Leaf) -> bool:
        """Return whether every state that gives all of `atoms` gives `atom`."""
        return atom in atoms or self._follows(atoms, atom)

    def _follows(self, atoms: AtomSet, atom: Leaf) -> bool:
        """Return whether `atoms` entail an atom that is not one of them."""
        if self._restated and any(self._restates(other, atom) for other in atoms):
            return True
        match atom:
            case ir.Has(privilege=privilege, target=target):
                owners_have = privilege in self._owner_privileges
                owned = (a.target for a in atoms if owners_have and isinstance(a, ir.Owner))
                if any(self._owned(privilege, o, target) for o in owned):
                    return True
                inherited = privilege in self._inherited
                if not inherited and not self._implied:
                    return False
                given = (a for a in atoms if isinstance(a, ir.Has) and self._gives(a, privilege))
                above = any(self._reaches(privilege, a.target, target) for a in given)
                if not self._denies or not above:
                    return above
                same = [a.target for a in atoms if isinstance(a, ir.Has | ir.HasBelow) and a.privilege == privilege]
                return inherited and not owners_have and any(self._reaches(privilege, target, t) for t in same)
            case ir.HasBelow():
                return any(self._gives_below(a, atom) for a in atoms) or self.entails(atoms, on_entity(atom))
            case ir.OwnsBelow(target=target):
                return any(isinstance(a, ir.Owner | ir.OwnsBelow) and self._within(a.target, target) for a in atoms)
            case ir.Compare():
                return self.comparisons.follows([a for a in atoms if isinstance(a, ir.Compare)], atom)
            case _:
                assert isinstance(atom, ir.ByType) or atom.kind.alone
                return False

    def _restates(self, atom: Leaf, other: Leaf) -> bool:
        """Return whether an atom says what another does, of an entity that all objects share, or by the level: what holds on every one does on any."""
        if not isinstance(atom, ir.OnTarget) or type(atom) is not type(other):
            return False
        own, wanted = atom.target, cast("ir.Owner", other).target  # of the same kind
        if own.type != wanted.type:
            return False
        same_level = own.level == wanted.level or (own.level, wanted.level) in LEVELS_SAYING
        same_slot = own.slot == wanted.slot or own.type in self._shared
        return same_level and same_slot and with_targets(atom, lambda _: wanted) == other

    def possible(self, atoms: AtomSet) -> bool:
        """Return whether the atoms can hold together: whether there are values for what they compare."""
        return not self._compares or self.comparisons.possible(a for a in atoms if isinstance(a, ir.Compare))

    def _gives(self, atom: ir.Has, privilege: str) -> bool:
        """Return whether every grant that gives the atom gives a privilege on the same object."""
        if atom.privilege == privilege:
            return True
        return self._implied and privilege in self._facts.gives(atom.privilege, atom.target.type)

    def _gives_below(self, atom: Leaf, below: ir.HasBelow) -> bool:
        """Return whether an atom on the target or below it gives what is to be held there."""
        match atom:
            case ir.Owner(target=target) | ir.OwnsBelow(target=target):
                return below.privilege in self._owner_privileges and self._within(target, below.target)
            case ir.Has(target=target):
                sure = atom.privilege == below.privilege or (not self._denies and self._gives(atom, below.privilege))
                return sure and self._within(target, below.target)
            case ir.HasBelow(target=target):
                sure = atom.privilege == below.privilege or (
                    below.privilege in self._facts.gives(atom.privilege, target.type)
                    and below.privilege in self._facts.gives_below(atom.privilege, target.type)
                )
                return sure and self._within(target, below.target)
            case _:
                return False

    def _within(self, lower: ir.Target, upper: ir.Target) -> bool:
        """Return whether a target is another one or lies below it on the same path."""
        if (lower.slot != upper.slot and upper.type not in self._shared) or upper.type not in self._chains[lower.type]:
            return False
        return lower.type != upper.type or lower.level == upper.level or (upper.level, lower.level) in LEVELS_AROUND

    def entailments(self, atoms: Collection[ir.Atom]) -> Iterator[tuple[tuple[ir.Atom, ...], ir.Atom]]:
        """Pairs of premises and a conclusion among the atoms: the premises together entail the conclusion, as in `entails`."""
        owners = [atom for atom in atoms if isinstance(atom, ir.Owner)]
        by_name: dict[str, list[ir.Has]] = {}
        for atom in atoms:
            if isinstance(atom, ir.Has):
                by_name.setdefault(atom.privilege, []).append(atom)
        for name, same in by_name.items():
            for lower in same:
                owners_have = name in self._owner_privileges
                yield from (((o,), lower) for o in owners if owners_have and self._owned(name, o.target, lower.target))
                above = [a for a in same if a is not lower and self._reaches(name, a.target, lower.target)]
                if self._implied:
                    others = (a for other, listed in by_name.items() if other != name for a in listed)
                    above += [a for a in others if self._reaches(name, a.target, lower.target) and self._gives(a, name)]
                if not self._denies:
                    yield from (((upper,), lower) for upper in above)
                elif above and not owners_have and name in self._inherited:
                    below: list[ir.Atom] = [
                        a for a in same if a is not lower and self._reaches(name, lower.target, a.target)
                    ]
                    belows = (a for a in atoms if isinstance(a, ir.HasBelow) and a.privilege == name)
                    below += [a for a in belows if self._reaches(name, lower.target, a.target)]
                    yield from (((upper, under), lower) for upper in above for under in below)
        for head in atoms:
            if isinstance(head, ir.Below | ir.Compare):
                yield from (((a,), head) for a in atoms if a is not head and self._follows(frozenset({a}), head))
            elif self._restated:
                yield from (((a,), head) for a in atoms if a is not head and self._restates(a, head))

    def implies(self, premise: Iterable[AtomSet], conclusion: Iterable[AtomSet]) -> bool:
        """Return whether each set of the premise suffices for some set of the conclusion, so that the first condition implies the second."""
        targets = list(conclusion)
        return all(any(self._suffices(s, t) for t in targets) for s in premise)

    def _suffices(self, atoms: AtomSet, required: AtomSet) -> bool:
        return required <= atoms or all(self._follows(atoms, atom) for atom in required - atoms)

    def _reaches(self, privilege: str, upper: ir.Target, lower: ir.Target) -> bool:
        """Return whether `upper` is `lower` or, if the privilege is inherited, lies above it on the same path."""
        inherited = privilege in self._inherited
        if upper.slot != lower.slot and upper.type not in self._shared:
            return False
        if upper.level != "nearest" or lower.level != "nearest":
            return self._reaches_level(upper, lower) if inherited else upper == lower
        return upper.type in self._chains[lower.type] if inherited else upper.type == lower.type

    def _owned(self, privilege: str, upper: ir.Target, lower: ir.Target) -> bool:
        """As `_reaches`, for what owners have: the owner of any level has it on the nearest. This makes no cycle, as nothing entails owners."""
        any_level = upper.level == "any" and privilege in self._inherited and not self._denies
        return self._reaches(privilege, replace(upper, level="nearest") if any_level else upper, lower)

    def _reaches_level(self, upper: ir.Target, lower: ir.Target) -> bool:
        """As `_reaches` where a type nests, for an inherited privilege and whatever number of levels. Incomplete where the number decides."""
        if upper == lower:
            return True
        if self._denies and {upper.level, lower.level} & {"any", "every"}:
            return False
        if upper.type != lower.type:
            return upper.type in self._chains[lower.type]
        return (upper.level, lower.level) in LEVELS_ABOVE

    def reduce(self, atoms: AtomSet) -> AtomSet:
        """Drop the atoms that the others entail. The result is unique: only implication has cycles, and then order decides."""
        remaining = atoms
        for atom in sorted(atoms, key=self.order, reverse=True) if self._ambiguous else atoms:
            # Nothing else is ever entailed, unless by what says the same.
            if self._restated or isinstance(atom, ir.Has | ir.Below | ir.Compare):
                rest = remaining - {atom}
                remaining = rest if self._follows(rest, atom) else remaining
        return remaining

    def antichain(self, sets: Iterable[AtomSet]) -> frozenset[AtomSet]:
        """The weakest sets, none of which suffices for another. Of reduced sets that suffice for each other, the first stays."""
        distinct = frozenset(sets)
        if len(distinct) < 2:
            return distinct
        weakest: list[AtomSet] = []
        for atoms in sorted(distinct, key=self._rank if self._ambiguous else len):
            self.spend(len(weakest))
            if any(self._suffices(atoms, known) for known in weakest):
                continue
            weakest = [known for known in weakest if not self._suffices(known, atoms)]
            weakest.append(atoms)
        return frozenset(weakest)

    def _rank(self, atoms: AtomSet) -> tuple[int, list[tuple[int, str, int, str]]]:
        return len(atoms), sorted(map(self.order, atoms))

    def spend(self, steps: int) -> None:
        """Deduct steps from those left. Raises Undecided if there are too few."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise Undecided(f"not decided: the minimal sets of a condition take more than {STEPS:,} steps")

    def _sets(self, formula: ir.Formula, flags: frozenset[str], types: Mapping[str, str]) -> frozenset[AtomSet]:
        return _Sets(self, flags, types).fold(formula)

    def resolved(self, can: ir.Can, flags: frozenset[str]) -> frozenset[AtomSet]:
        """The minimal sets of what a `can` refers to, computed once; their steps are counted each time, so that order does not matter."""
        key = (can.target.type, can.operation, flags)
        if self._too_many.get(key, -1) >= self._steps_left:
            self.spend(self._steps_left + 1)  # at least as many steps were not enough before
        if key not in self._sets_of_can:
            on_resource = ir.Can(operation=can.operation, target=ir.Target(slot=ir.RESOURCE, type=can.target.type))
            steps_before = self._steps_left
            try:
                sets = self._sets(resolve_can(self.program, on_resource), flags, {})
            except Undecided:
                self._too_many[key] = steps_before
                raise
            self._sets_of_can[key] = sets, steps_before - self._steps_left
        else:
            self.spend(self._sets_of_can[key][1])
        sets, _ = self._sets_of_can[key]
        if can.target.slot == ir.RESOURCE:
            return sets
        return frozenset(frozenset(move_to_slot(a, can.target.slot) for a in atoms) for atoms in sets)


class _Sets(RequestAlgebra[frozenset[AtomSet]]):
    """The minimal sets of conditions for one kind of request."""

    def __init__(self, form: Canonical, flags: frozenset[str], types: Mapping[str, str]) -> None:
        super().__init__(form.program, flags, types)
        self._form = form
        self._flags = flags

    def atom(self, atom: ir.Atom) -> frozenset[AtomSet]:
        atoms = frozenset({atom})
        return frozenset({atoms}) if self._form.possible(atoms) else frozenset()

    def all_of(self, values: Iterable[frozenset[AtomSet]]) -> frozenset[AtomSet]:
        form = self._form
        product: frozenset[AtomSet] = frozenset({frozenset()})
        for right in values:
            form.spend(len(product) * len(right))
            product = form.antichain(form.reduce(a | b) for a in product for b in right if form.possible(a | b))
        return product

    def any_of(self, values: Iterable[frozenset[AtomSet]]) -> frozenset[AtomSet]:
        return self._form.antichain(atoms for sets in values for atoms in sets)

    def can(self, can: ir.Can) -> frozenset[AtomSet]:
        return self._form.resolved(can, self._flags)

    def by_type(self, choice: ir.ByType) -> frozenset[AtomSet]:
        return super().by_type(choice) if choice.slot in self.types else frozenset({frozenset({choice})})


@once
def canonical_form(program: ir.Program) -> Canonical:
    """The shared `Canonical` of a program.

    Example:
        sets = canonical_form(program).minimal_sets(rule.item_condition)
    """
    return Canonical(program)


def minimal_sets(
    program: ir.Program, rule: ir.Rule, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
) -> MinimalSets:
    """The minimal sets of a rule's call (its gate and `requires`)."""
    return canonical_form(program).minimal_sets(rule.call_condition, flags, types)
