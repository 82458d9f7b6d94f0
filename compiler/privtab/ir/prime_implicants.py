"""The minimal sets of a condition modulo what values of attributes can be: what they are depends on its meaning, not on how it is written.

Sets whose comparisons complete each other are joined: `mode = read` or `mode = list` is `mode in {read, list}`, and nothing at all if these
are all values and one is the default. Attributes that comparisons connect have representative values, as in `comparisons.py`; a set of
worlds, each an assignment of values, is a number with a bit for each. Beyond `WORLDS` or `STEPS`, this is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, reduce
from itertools import permutations
from operator import and_, or_
from typing import TypeAlias

from privtab.base.attributes import KINDS, Operator, Scalar, holds
from privtab.base.errors import Undecided
from privtab.ir.comparisons import Comparisons
from privtab.ir.nodes import Compare, Term
from privtab.ir.shapes import Leaf

WORLDS = 10_000
"""Limit on the assignments of values to attributes that comparisons connect."""
STEPS = 50_000
"""Limit on the sets of worlds that are compared for such attributes: some tenths of a second."""
AtomSet: TypeAlias = frozenset[Leaf]
Mask: TypeAlias = int


def connected(theory: Comparisons, atoms: Iterable[Leaf]) -> list[frozenset[Compare]]:
    """The comparisons among some atoms, in parts that have no attribute in common; those about several levels are atoms like others."""
    parts: dict[frozenset[Term], frozenset[Compare]] = {}
    for atom in atoms:
        if isinstance(atom, Compare) and atom.several is None:
            terms, part = frozenset(map(theory.term, atom.terms)), frozenset({atom})
            for near in [known for known in parts if known & terms]:
                terms, part = terms | near, part | parts.pop(near)
            parts[terms] = part
    return list(parts.values())


def completed(
    sets: Iterable[AtomSet],
    part: frozenset[Compare],
    theory: Comparisons,
    joined: Callable[[AtomSet], AtomSet | None],
    entails: Callable[[AtomSet, Leaf], bool],
) -> Iterator[AtomSet]:
    """Sets that suffice for the same condition, with the weakest comparisons of one part.

    `joined`: the union of sets without what it entails, or None if it cannot hold. `entails`: whether a set gives an atom.
    """
    if len(part) == 1 and any(atom.operator == "in" and isinstance(atom.right, Term) for atom in part):
        yield from sets  # which nothing else says
        return
    worlds = _Worlds(theory, part)
    sets = list(sets)
    bits = {atom: 1 << number for number, atom in enumerate(frozenset().union(*sets) - part)}
    given: dict[AtomSet, Mask] = {}
    for atoms in sets:
        own = reduce(and_, (worlds.where(atom) for atom in atoms & part if isinstance(atom, Compare)), worlds.all)
        given[atoms - part] = given.get(atoms - part, 0) | own
    own_bits = {atoms: _union(map(bits.__getitem__, atoms)) for atoms in given}
    found: dict[AtomSet, Mask] = {}
    lacking: dict[AtomSet, int] = {}
    """For each set that was found, the bits of the atoms that it does not give: it suffices for the sets without any of them."""
    together: dict[int, AtomSet | None] = {}
    """What the union of two sets is joined to: many pairs have the same union."""
    waiting: list[AtomSet | None] = [*given]
    while waiting:
        others = waiting.pop()
        if others is not None and others not in found:
            worlds.spend(len(given))
            lacks = lacking[others] = _union(bit for atom, bit in bits.items() if not entails(others, atom))
            found[others] = _union(mask for known, mask in given.items() if not own_bits[known] & lacks)
            own = own_bits[others] = _union(map(bits.__getitem__, others))
            for further, mask in given.items():
                if mask & ~found[others]:
                    union = own | own_bits[further]
                    if union not in together:
                        together[union] = joined(others | further)
                        waiting.append(together[union])
    worlds.name_only_what_is_needed([*found.values()])
    said = [(own_bits[others], lacking[others], mask) for others, mask in found.items()]
    for (others, mask), (own, lacks, _) in zip(found.items(), said, strict=True):
        weaker = [known_mask for known, known_lacks, known_mask in said if not known & lacks and own & known_lacks]
        cubes = (cube for cube in worlds.weakest(mask) if all(cube & ~known for known in weaker))
        yield from (others | atoms for atoms in worlds.written(cubes))


class _Worlds:
    """The worlds of the attributes that some comparisons connect; words of sets are in or out on their own."""

    def __init__(self, theory: Comparisons, part: frozenset[Compare]) -> None:
        self._theory = theory
        self._steps = STEPS
        self._names = {theory.term(term): term for atom in sorted(part, key=repr) for term in atom.terms}
        types, domains = theory.domains(part)
        self._types = {term: types[term] for term in sorted(types, key=lambda term: _order(self._names[term]))}
        constants = {constant for atom in part if isinstance(atom.right, tuple) for constant in atom.right}
        self._constants = constants
        compared = constants.union(*domains.values())
        variables: dict[tuple[Term, str | None], list[Scalar | None]] = {}
        for term, type_ in self._types.items():
            words = (word for word in type_.values if word in compared)
            own = (
                {(term, word): [False, True] for word in words}
                if type_.type == "set"
                else {(term, None): domains[term]}
            )
            variables |= own  # type: ignore[arg-type]
        size = reduce(lambda size, domain: size * len(domain), variables.values(), 1)
        if size > WORLDS:
            raise Undecided(f"not decided: values of attributes that are compared combine in more than {WORLDS:,} ways")
        self.all: Mask = (1 << size) - 1
        self._left_out: frozenset[object] = frozenset()
        """Constants, and pairs of attributes, that no comparison needs to name."""
        self._values: dict[tuple[Term, str | None], dict[Scalar | None, Mask]] = {}
        stride = 1
        for variable, domain in variables.items():
            block = ((1 << stride) - 1) * (self.all // ((1 << stride * len(domain)) - 1))
            self._values[variable] = {value: block << stride * number for number, value in enumerate(domain)}
            stride *= len(domain)

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise Undecided(f"not decided: comparisons of attributes take more than {STEPS:,} steps")

    def where(self, atom: Compare) -> Mask:
        """The worlds in which a comparison holds."""
        left, right, operator = self._theory.term(atom.left), atom.right, atom.operator
        if isinstance(right, tuple):
            if operator == "contains":
                return self._values[left, str(right[0])][True]
            constants = right if operator == "in" else right[0]
            return _union(mask for value, mask in self._present(left) if holds(value, operator, constants))
        other = self._theory.term(right)
        if operator == "in":
            return _union(m & self._values.get((other, str(v)), {True: 0})[True] for v, m in self._present(left))
        both = ((v, m, w, n) for v, m in self._present(left) for w, n in self._present(other))
        return _union(m & n for v, m, w, n in both if holds(v, operator, w))

    def _present(self, term: Term) -> list[tuple[Scalar, Mask]]:
        return [(value, mask) for value, mask in self._values[term, None].items() if value is not None]

    @cached_property
    def _pairs(self) -> list[tuple[Compare, Mask]]:
        """Every comparison of two attributes, the stronger first, attributes of users on the left; and of texts with themselves, which are present then."""
        found: list[tuple[Compare, Mask]] = []
        itself = ((term, term) for term, type_ in self._types.items() if type_.type == "text")
        for first, second in (*permutations(self._types, 2), *itself):
            left, right = self._names[first], self._names[second]
            operators: tuple[Operator, ...] = ("=", "<", ">", "<=", ">=", "in")
            for operator in operators if _order(left) <= _order(right) else operators[-1:]:
                if self._types[first].compares_to(operator, self._types[second]):
                    compare = Compare(left=left, operator=operator, right=right)
                    found.append((compare, self.where(compare)))
        return found

    def name_only_what_is_needed(self, masks: Collection[Mask]) -> None:
        """Leave out what all of some sets of worlds can be said without."""
        said = [(mask, [(cube, _names(self._atoms(cube))) for cube in self.weakest(mask)]) for mask in masks]
        for name in sorted({name for _, cubes in said for _, names in cubes for name in names}, key=repr):
            without = self._left_out | {name}
            if all(_union(cube for cube, names in cubes if not names & without) == mask for mask, cubes in said):
                self._left_out = without

    def _family(self) -> frozenset[Mask]:
        """The weakest comparisons, of which all others consist."""
        found = [mask for atom, mask in self._pairs if atom.terms not in self._left_out]
        for (term, word), masks in self._values.items():
            if word is not None:
                found += [masks[True]] * self._can_be_named(term, word)
            elif self._types[term].type == "integer":
                points = [mask for _, mask in sorted(self._present(term))]
                found += (_union(part) for n in range(len(points)) for part in (points[n:], points[: n + 1]))
            else:
                named = [mask for value, mask in self._present(term) if self._can_be_named(term, value)]
                found += [_union(named), *(_union(named) & ~mask for mask in named)]
        return frozenset(found) - {0, self.all}

    def _can_be_named(self, term: Term, value: Scalar) -> bool:
        is_known = self._types[term].type not in ("text", "set") or value in self._constants
        return is_known and value not in self._left_out

    def weakest(self, allowed: Mask) -> list[Mask]:
        """The largest sets of worlds within some that comparisons can name."""
        found, excluded, family = [self.all], self.all & ~allowed, self._family()
        while excluded:
            world = excluded & -excluded
            excluded ^= world
            covering = [mask for mask in found if mask & world]
            if covering:
                without = _largest(mask for mask in family if not mask & world)
                self.spend(len(covering) * len(without) + len(found))
                kept = [mask for mask in found if not mask & world]
                found = _largest([*kept, *{cube & mask for cube in covering for mask in without}])
        if _union(found) != allowed:
            raise Undecided("not decided: no comparisons say in which worlds a condition holds")
        return found

    def written(self, cubes: Iterable[Mask]) -> Iterator[frozenset[Compare]]:
        """The comparisons that name each of some sets of worlds; single numbers that are alternatives are one comparison."""
        found = {frozenset(self._atoms(cube)) for cube in cubes}
        for term in (term for term, type_ in self._types.items() if type_.type == "integer"):
            single: dict[frozenset[Compare], list[Scalar]] = {}
            for atoms in found:
                for atom in atoms:
                    if atom.left == self._names[term] and atom.operator == "=" and isinstance(atom.right, tuple):
                        single.setdefault(atoms - {atom}, []).extend(atom.right)
            for rest, numbers in single.items():
                found -= {rest | {_equal(self._names[term], [number])} for number in numbers}
                found.add(rest | {_equal(self._names[term], sorted(numbers))})
        yield from found

    def _atoms(self, cube: Mask) -> list[Compare]:
        pairs = {atom.terms: (atom, mask) for atom, mask in reversed(self._pairs) if not cube & ~mask}
        listed = [pair for terms, pair in pairs.items() if terms not in self._left_out]
        said = (atom for term, word in self._values for atom in self._said(term, word, cube))
        listed += [(atom, self.where(atom)) for atom in said]
        for entry in tuple(listed):
            rest = [other for other in listed if other is not entry]
            if reduce(and_, (mask for _, mask in rest), self.all) == cube:
                listed = rest
        return [atom for atom, _ in listed]

    def _said(self, term: Term, word: str | None, cube: Mask) -> Iterator[Compare]:
        """The comparisons of one attribute that hold in some worlds."""
        left, type_ = self._names[term], self._types[term]
        values = [value for value, mask in self._values[term, word].items() if mask & cube]
        present = [value for value in values if value is not None]
        if word is not None:
            yield from [Compare(left=left, operator="contains", right=(word,))] * (
                values == [True] and self._can_be_named(term, word)
            )
        elif None in values:
            return
        elif type_.type == "integer":
            lowest, highest = min(map(int, present)), max(map(int, present))
            if lowest == highest:
                yield _equal(left, [lowest])
                return
            if highest < type_.highest:
                yield Compare(left=left, operator="<", right=(highest + 1,))
            if lowest > type_.lowest:
                yield Compare(left=left, operator=">", right=(lowest - 1,))
            elif highest == type_.highest and type_.default is None:
                yield Compare(left=left, operator=">=", right=(lowest,))
        elif all(self._can_be_named(term, value) for value in present) and len(values) < len(self._values[term, word]):
            yield _equal(
                left, sorted(present, key=lambda v: (type_.values.index(v) if v in type_.values else 0, str(v)))
            )


def _equal(left: Term, values: Iterable[Scalar]) -> Compare:
    constants = tuple(values)
    return Compare(left=left, operator="=" if len(constants) == 1 else "in", right=constants)


def _names(atoms: Iterable[Compare]) -> frozenset[object]:
    """The texts, booleans and terms that some comparisons name."""
    named = (atom.right if isinstance(atom.right, tuple) else (atom.terms,) for atom in atoms)
    return frozenset(name for names in named for name in names if isinstance(name, bool | str | tuple))


def _union(masks: Iterable[Mask]) -> Mask:
    return reduce(or_, masks, 0)


def _largest(masks: Iterable[Mask]) -> list[Mask]:
    found: list[Mask] = []
    for mask in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
        if mask and all(mask & ~known for known in found):
            found.append(mask)
    return found


def _order(term: Term) -> tuple[object, ...]:
    """Sort key: attributes of users before attributes of entities and requests."""
    return KINDS.index(term.kind), term.attribute, repr(term.target)
