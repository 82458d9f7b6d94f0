"""The canonical form of a condition: its minimal sets.

A condition is monotone, so it is the antichain of the smallest sets of atoms that suffice for it. Atoms are not independent;
a set of atoms *entails* an atom under the file's semantics when every state that gives the set gives the atom:

* an atom entails itself;
* with inheritance and without denials, a privilege on an object entails it on everything below;
* with inheritance and denials it does not (allowed above, denied below), but a privilege above *and* below entails it in
  between: the upper one is allowed where the middle one looks, and the lower one says that nothing denies it on the way;
* an owner has each held privilege on what he owns and, with inheritance, below it, whatever is denied.

The last two do not combine: where owners hold the privilege, the lower one may stand by ownership alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, assert_never

from privtab._once import once
from privtab.errors import UnsupportedError
from privtab.ir.formula import call_condition, item_condition, move, resolve
from privtab.ir.nodes import (
    RESOURCE,
    And,
    Atom,
    ByType,
    Can,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    When,
)

Leaf: TypeAlias = Atom | ByType
"""An atom, or a condition on a `with` object whose type is not given, which then stands for itself."""
AtomSet: TypeAlias = frozenset[Leaf]
MinimalSets: TypeAlias = tuple[tuple[Leaf, ...], ...]

LIMIT = 20_000
"""Minimal sets of one condition before it is refused: no table that people keep comes near."""


class Canonical:
    """Minimal sets of a program's conditions, with what `can` refers to computed once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._position = {name: i for i, name in enumerate(program.entities)}
        self._above = program.chains
        owner = program.semantics.owner
        self._held = frozenset(owner.holds) if owner else frozenset()
        self._down = program.semantics.inheritance == "down"
        self._denies = program.semantics.deny == "overrides"
        self._can: dict[tuple[str, str, frozenset[str]], frozenset[AtomSet]] = {}

    def minimal_sets(
        self, formula: Formula, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
    ) -> MinimalSets:
        """The minimal sets of a formula, in canonical order.

        `flags`: those that the request sets. `types`: the type of the object in each `with` slot that may have several.
        """
        return self.ordered(self._sets(formula, flags, types or {}))

    def ordered(self, sets: Iterable[AtomSet]) -> MinimalSets:
        """Sets and the atoms in them in the one order that every output uses."""
        rows = [tuple(sorted(s, key=self.order)) for s in sets]
        return tuple(sorted(rows, key=lambda row: (len(row), [self.order(a) for a in row])))

    def order(self, atom: Leaf) -> tuple[int, str, int, str]:
        """Sort key: membership first, then privileges and roles, then ownership; from the root down."""
        match atom:
            case Member(target=target):
                return (0, target.slot, self._position[target.type], "")
            case ServiceAdmin():
                return (1, "", 0, "")
            case Self(target=target):
                return (2, target.slot, 0, "")
            case Has(target=target, privilege=privilege):
                return (3, target.slot, self._position[target.type], privilege)
            case Holds(target=target):
                return (4, target.slot, self._position[target.type], "")
            case Owner(target=target):
                return (5, target.slot, self._position[target.type], "")
            case ByType(slot=slot, text=text):
                return (6, slot, 0, text)
            case _:
                assert_never(atom)

    def entails(self, atoms: AtomSet, atom: Leaf) -> bool:
        """Whether every state that gives all of `atoms` gives `atom`."""
        return atom in atoms or self._follows(atoms, atom)

    def _follows(self, atoms: AtomSet, atom: Leaf) -> bool:
        """Whether an atom that is none of `atoms` is entailed by them."""
        match atom:
            case Has(privilege=privilege, target=target):
                held = privilege in self._held
                if held and any(isinstance(a, Owner) and self._reaches(a.target, target) for a in atoms):
                    return True
                if not self._down:
                    return False
                same = [a.target for a in atoms if isinstance(a, Has) and a.privilege == privilege]
                above = any(self._reaches(t, target) for t in same)
                if not self._denies:
                    return above
                return above and not held and any(self._reaches(target, t) for t in same)
            case Owner() | Member() | Self() | Holds() | ServiceAdmin() | ByType():
                return False
            case _:
                assert_never(atom)

    def implies(self, one: Iterable[AtomSet], other: Iterable[AtomSet]) -> bool:
        """Whether each set of `one` suffices for some set of `other`: the first condition implies the second."""
        targets = list(other)
        return all(any(self._suffices(s, t) for t in targets) for s in one)

    def _suffices(self, atoms: AtomSet, wanted: AtomSet) -> bool:
        return wanted <= atoms or all(self._follows(atoms, atom) for atom in wanted - atoms)

    def _reaches(self, upper: Target, lower: Target) -> bool:
        """Whether `upper` is `lower` or, with inheritance, lies above it on the same path."""
        if upper.slot != lower.slot:
            return False
        return upper.type in self._above[lower.type] if self._down else upper.type == lower.type

    def _reduce(self, atoms: AtomSet) -> AtomSet:
        """Without the atoms that the others entail; the rest is unique, entailment having no cycles."""
        kept = atoms
        for atom in atoms:
            if isinstance(atom, Has):  # nothing else is ever entailed
                rest = kept - {atom}
                kept = rest if self._follows(rest, atom) else kept
        return kept

    def _antichain(self, sets: Iterable[AtomSet]) -> frozenset[AtomSet]:
        """The weakest sets: none suffices for another. No two that differ suffice for each other, being reduced."""
        distinct = frozenset(sets)
        if len(distinct) < 2:
            return distinct
        weakest: list[AtomSet] = []
        for atoms in sorted(distinct, key=len):
            if any(self._suffices(atoms, known) for known in weakest):
                continue
            weakest = [known for known in weakest if not self._suffices(known, atoms)]
            weakest.append(atoms)
        return frozenset(weakest)

    def _sets(self, formula: Formula, flags: frozenset[str], types: Mapping[str, str]) -> frozenset[AtomSet]:
        match formula:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
                return frozenset({frozenset({formula})})
            case And():
                product: frozenset[AtomSet] = frozenset({frozenset()})
                for part in formula.parts:
                    right = self._sets(part, flags, types)
                    if len(product) * len(right) > LIMIT * 4:
                        raise UnsupportedError(f"a condition has more than {LIMIT} minimal sets")
                    product = self._antichain(self._reduce(a | b) for a in product for b in right)
                return product
            case Or():
                return self._antichain(s for part in formula.parts for s in self._sets(part, flags, types))
            case When():
                return self._sets(formula.body, flags, types) if formula.flag in flags else frozenset({frozenset()})
            case Can():
                return self._resolved(formula, flags)
            case ByType():
                if formula.slot not in types:
                    return frozenset({frozenset({formula})})
                case_ = dict(formula.cases).get(types[formula.slot])
                return frozenset() if case_ is None else self._sets(case_, flags, types)
            case _:
                assert_never(formula)

    def _resolved(self, can: Can, flags: frozenset[str]) -> frozenset[AtomSet]:
        key = (can.target.type, can.operation, flags)
        if key not in self._can:
            here = Can(operation=can.operation, target=Target(slot=RESOURCE, type=can.target.type))
            self._can[key] = self._sets(resolve(self.program, here), flags, {})
        if can.target.slot == RESOURCE:
            return self._can[key]
        return frozenset(frozenset(_moved(a, can.target.slot) for a in atoms) for atoms in self._can[key])


def _moved(atom: Leaf, slot: str) -> Leaf:
    moved = move(atom, slot)
    assert isinstance(moved, Has | Owner | Member | Self | Holds | ServiceAdmin | ByType)
    return moved


@once
def canonical(program: Program) -> Canonical:
    """The shared canonicaliser of a program."""
    return Canonical(program)


def minimal_sets(
    program: Program, rule: Rule, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
) -> MinimalSets:
    """The minimal sets of a rule's call (its gate and `requires`)."""
    return canonical(program).minimal_sets(call_condition(rule), flags, types)


def each_minimal_sets(
    program: Program, rule: Rule, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
) -> MinimalSets | None:
    """The minimal sets of a rule's `each` alone; None where it has none."""
    return None if rule.each is None else canonical(program).minimal_sets(rule.each, flags, types)


def item_minimal_sets(
    program: Program, rule: Rule, flags: frozenset[str] = frozenset(), types: Mapping[str, str] | None = None
) -> MinimalSets:
    """The minimal sets for a named item: gate, `requires` and `each`."""
    return canonical(program).minimal_sets(item_condition(rule), flags, types)


def target_text(target: Target, rule: Rule, types: Mapping[str, str] | None = None) -> str:
    """How a target is written: its type; for a `with` object its name there, and `name.type` for what lies above it."""
    if target.slot == RESOURCE:
        return target.type
    slot = next(w for w in rule.withs if w.name == target.slot)
    itself = (types or {}).get(slot.name, slot.types[0])
    return slot.name if target.type == itself else f"{slot.name}.{target.type}"


def atom_text(atom: Leaf, rule: Rule, types: Mapping[str, str] | None = None) -> str:
    """How an atom is written, by types: `READ (namespace)`, `owner (catalog)`, `self`, `member (metalake)`.

    `types`: as for `minimal_sets`.
    """
    return atom_words(atom, lambda target: target_text(target, rule, types))


def atom_words(atom: Leaf, place: Callable[[Target], str]) -> str:
    """An atom in the one way that every output writes it; `place` says how its target is written."""
    match atom:
        case ServiceAdmin():
            return "service admin"
        case Self():
            return "self"
        case ByType():
            return atom.text
        case Has():
            return f"{atom.privilege} ({place(atom.target)})"
        case Owner():
            return f"owner ({place(atom.target)})"
        case Member():
            return f"member ({place(atom.target)})"
        case Holds():
            return f"holds ({place(atom.target)})"
        case _:
            assert_never(atom)
