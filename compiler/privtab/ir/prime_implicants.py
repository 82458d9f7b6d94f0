"""The minimal sets of a condition modulo what values of attributes can be.

Sets that suffice for a condition are joined where their comparisons complete each other: `mode = read` or `mode = list` is
`mode in {read, list}`, and nothing at all if these are all values and one is the default. What results depends on what a condition means,
not on how it is written: all sets of comparisons are found that suffice and of which none is weaker, each written in one way.

The values of attributes that comparisons connect are represented as in `comparisons.py`; a set of worlds, an assignment of these values
each, is a number with a bit for each. Beyond `WORLDS` or `STEPS`, this is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from itertools import combinations
from operator import and_, or_
from typing import TypeAlias

from privtab.attributes import KINDS, Operator, Scalar, holds
from privtab.errors import Undecided
from privtab.ir.comparisons import Comparisons
from privtab.ir.formula import several
from privtab.ir.nodes import Compare, Term
from privtab.ir.shapes import Leaf

WORLDS = 10_000
"""Limit on the assignments of values to attributes that comparisons connect."""
STEPS = 50_000
"""Limit on the sets of worlds that are looked at for such attributes: some tenths of a second."""
AtomSet: TypeAlias = frozenset[Leaf]
Mask: TypeAlias = int
Variable: TypeAlias = tuple[Term, str | None]
"""An attribute, or a word of one that is a set: whether it is in."""
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def connected(theory: Comparisons, atoms: Iterable[Leaf]) -> Iterator[frozenset[Compare]]:
    """The comparisons among some atoms, in parts that have no attribute in common; those about several levels are atoms like others."""
    parts: list[tuple[frozenset[Term], frozenset[Compare]]] = []
    for atom in atoms:
        if isinstance(atom, Compare) and several(atom) is None:
            terms, part = frozenset(map(theory.term, atom.terms)), frozenset({atom})
            near = [other for other in parts if not other[0].isdisjoint(terms)]
            parts = [other for other in parts if other not in near]
            parts.append((terms.union(*(t for t, _ in near)), part.union(*(p for _, p in near))))
    yield from (part for _, part in parts)


def completed(
    sets: Iterable[AtomSet], part: frozenset[Compare], theory: Comparisons, joined: Callable[[AtomSet], AtomSet | None],
    suffices: Callable[[AtomSet, AtomSet], bool],
) -> Iterator[AtomSet]:  # fmt: skip
    """Sets that suffice for the same condition, with the weakest comparisons of one part.

    `joined`: the union of sets without what it entails, or None if it cannot hold. `suffices`: whether the first set gives the second.
    """
    [*alone] = part if len(part) == 1 else ()
    if alone and isinstance(alone[0].right, Term):
        yield from (atoms - part | {_oriented(alone[0])} if part <= atoms else atoms for atoms in sets)
        return
    worlds = _Worlds(theory, part)
    given: dict[AtomSet, Mask] = {}
    for atoms in sets:
        others = atoms - part
        own = reduce(and_, (worlds.where(atom) for atom in atoms & part if isinstance(atom, Compare)), worlds.all)
        given[others] = given.get(others, 0) | own

    def allowed(others: AtomSet) -> Mask:
        worlds.spend(len(given))
        return reduce(or_, (mask for known, mask in given.items() if suffices(others, known)), 0)

    found = {others: allowed(others) for others in given}
    waiting = list(found)
    while waiting:
        others = waiting.pop()
        for further, mask in given.items():
            union = joined(others | further) if mask & ~found[others] else None
            if union is not None and union not in found:
                found[union] = allowed(union)
                waiting.append(union)
    worlds.distinguish(found.values())
    for others, mask in found.items():
        weaker = [found[known] for known in found if known != others and suffices(others, known)]
        cubes = (cube for cube in worlds.weakest(mask) if not any(cube & ~known == 0 for known in weaker))
        yield from (others | atoms for atoms in worlds.written(cubes))


class _Worlds:
    """The worlds of the attributes that some comparisons connect."""

    def __init__(self, theory: Comparisons, part: frozenset[Compare]) -> None:
        self._theory = theory
        self._names = {theory.term(term): term for atom in part for term in sorted(atom.terms, key=_order)}
        self.types, domains = theory.domains(part)
        words = {c for atom in part if isinstance(atom.right, tuple) for c in atom.right if isinstance(c, str)}
        words |= {value for type_ in self.types.values() if type_.type == "set" for value in type_.values}
        self._words = words | {str(type_.default) for type_ in self.types.values()}
        self._domains: dict[Variable, list[Scalar | None]] = {}
        for term in sorted(self.types, key=lambda term: _order(self._names[term])):
            type_ = self.types[term]
            if type_.type == "set":
                own = [word for word in type_.values if any(word in domain for domain in domains.values())]
                own += [word for word in type_.values if word in words and word not in own]
                self._domains |= {(term, word): [False, True] for word in sorted(set(own))}
            else:
                self._domains[term, None] = domains[term]
        self._steps = STEPS
        size, self._values = 1, dict[Variable, dict[Scalar | None, Mask]]()
        for domain in self._domains.values():
            size *= len(domain)
        if size > WORLDS:
            raise Undecided(f"not decided: values of attributes that are compared combine in more than {WORLDS:,} ways")
        self.all: Mask = (1 << size) - 1
        stride = 1
        for variable, domain in self._domains.items():
            repeated = self.all // ((1 << stride * len(domain)) - 1)
            block = ((1 << stride) - 1) * repeated
            self._values[variable] = {value: block << stride * number for number, value in enumerate(domain)}
            stride *= len(domain)
        self._classes: dict[Variable, list[frozenset[Scalar]]] = {}

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise Undecided(f"not decided: comparisons of attributes take more than {STEPS:,} steps")

    def where(self, atom: Compare) -> Mask:
        """The worlds in which a comparison holds."""
        left = self._theory.term(atom.left)
        if isinstance(atom.right, Term):
            return self._related(left, atom.operator, self._theory.term(atom.right))
        if atom.operator == "contains":
            return self._values[left, str(atom.right[0])][True]
        right = atom.right if atom.operator == "in" else atom.right[0]
        own = self._values[left, None].items()
        return reduce(or_, (mask for v, mask in own if v is not None and holds(v, atom.operator, right)), 0)

    def _related(self, left: Term, operator: Operator, right: Term) -> Mask:
        found: Mask = 0
        for value, mask in self._values[left, None].items():
            if value is None:
                continue
            if operator == "in":
                found |= mask & self._values.get((right, str(value)), {}).get(True, 0)
                continue
            others = self._values[right, None].items()
            fitting = (other for v, other in others if v is not None and holds(value, operator, v))
            found |= mask & reduce(or_, fitting, 0)
        return found

    @cached_property
    def _pairs(self) -> list[tuple[Compare, Mask]]:
        """Every comparison of two attributes, the stronger first."""
        found: list[tuple[Compare, Mask]] = []
        operators: tuple[Operator, ...] = ("=", "<", ">", "<=", ">=", "in")
        for first, second in combinations(self.types, 2):
            for operator in operators:
                for left, right in ((first, second), (second, first))[: 1 + (operator == "in")]:
                    if self.types[left].compares_to(operator, self.types[right]):
                        compare = Compare(left=self._names[left], operator=operator, right=self._names[right])
                        found.append((_oriented(compare), self._related(left, operator, right)))
        return found

    def distinguish(self, masks: Collection[Mask]) -> None:
        """Find which values may be told apart: those that cannot be exchanged for others without changing one of the sets of worlds."""
        for variable in self._domains:
            values = self._constants(variable)
            classes: list[list[Scalar]] = []
            for value in values:
                alike = next((c for c in classes if self._related_values and self._same(c[0], value, masks)), None)
                if alike is None:
                    classes.append([value])
                else:
                    alike.append(value)
            others = () if variable[1] is not None else self._domains[variable]
            other = next((v for v in others if v is not None and v not in values), None)
            if other is not None and self._related_values:
                classes = [c for c in classes if not self._same(c[0], other, masks)]
            self._classes[variable] = [frozenset(c) for c in classes]
        if any(reduce(or_, self.weakest(mask), 0) != mask for mask in masks):
            self._classes = {v: [frozenset({value}) for value in self._constants(v)] for v in self._domains}
            del self._family

    @cached_property
    def _related_values(self) -> bool:
        """Whether some values of two attributes are compared that have no order."""
        return any(compare.operator in ("=", "in") and self.types[self._theory.term(compare.left)].type != "integer" for compare, _ in self._pairs)

    def _constants(self, variable: Variable) -> list[Scalar]:
        """The values of a variable that a comparison can name."""
        type_ = self.types[variable[0]].type
        values = [value for value in self._domains[variable] if value is not None]
        if variable[1] is not None:
            return [word for term, word in self._domains if term == variable[0] and word is not None]
        if type_ == "integer":
            return []
        return [value for value in values if type_ != "text" or value in self._words]

    def _same(self, value: Scalar, other: Scalar, masks: Collection[Mask]) -> bool:
        """Whether two values can be exchanged for each other in all attributes."""
        exchanged: dict[Scalar | None, Scalar] = {value: other, other: value}
        strides, stride = dict[Variable, int](), 1
        for variable, domain in self._domains.items():
            strides[variable] = stride
            stride *= len(domain)
        order = [0]
        for (term, word), domain in self._domains.items():
            partner = term, str(exchanged[word]) if word in exchanged else word
            known = domain if word is None else [w for t, w in self._domains if t == term]
            if any(v in known and exchanged[v] not in known for v in exchanged):
                return False
            moved = [domain.index(exchanged.get(v, v)) if word is None else n for n, v in enumerate(domain)]
            order = [index + strides[partner] * place for place in moved for index in order]
        self.spend(len(order) // 10)
        return all(mask >> new & 1 == mask >> old & 1 for mask in masks for old, new in enumerate(order))

    def weakest(self, allowed: Mask) -> list[Mask]:
        """The largest sets of worlds within some that comparisons can name."""
        found = [self.all]
        excluded = self.all & ~allowed
        while excluded:
            world = excluded & -excluded
            excluded ^= world
            covering = [mask for mask in found if mask & world]
            if not covering:
                continue
            found = [mask for mask in found if not mask & world]
            without = _largest(mask for mask in self._family if not mask & world)
            self.spend(len(covering) * len(without))
            for mask in sorted({cube & other for cube in covering for other in without}, key=int.bit_count, reverse=True):
                self.spend(len(found) // 10)
                if mask and not any(mask & ~known == 0 for known in found):
                    found.append(mask)
        return found

    @cached_property
    def _family(self) -> list[Mask]:
        """The weakest comparisons, of which all others consist."""
        found = [mask for _, mask in self._pairs]
        for (term, word), masks in self._values.items():
            present = self.all & ~masks.get(None, 0)
            if word is not None:
                found += [masks[True]] * self._stands_alone(term, word)
            elif self.types[term].type == "integer":
                points = sorted(v for v in masks if isinstance(v, int))
                found += (reduce(or_, (masks[v] for v in points[n:])) for n in range(len(points)))
                found += (reduce(or_, (masks[v] for v in points[: n + 1])) for n in range(len(points)))
            else:
                named = [reduce(or_, (masks[v] for v in c)) for c in self._classes[term, word]]
                whole = present if self.types[term].type != "text" else reduce(or_, named, 0)
                found += [whole, *(whole & ~mask for mask in named)]
        return [mask for mask in dict.fromkeys(found) if mask not in (0, self.all)]

    def _stands_alone(self, term: Term, word: str) -> bool:
        """Whether nothing can be exchanged for a word of a set."""
        return any(word in c and len(c) == 1 for c in self._classes[term, word])

    def written(self, cubes: Iterable[Mask]) -> Iterator[frozenset[Compare]]:
        """The comparisons that name each of some sets of worlds; single numbers that are alternatives are one comparison."""
        found = [frozenset(self._atoms(cube)) for cube in cubes]
        for term, type_ in self.types.items():
            if type_.type == "integer":
                left, joined = self._names[term], dict[frozenset[Compare], set[Scalar]]()
                for atoms in found:
                    for atom in atoms:
                        if atom.left == left and atom.operator == "=" and isinstance(atom.right, tuple):
                            joined.setdefault(atoms - {atom}, set()).update(atom.right)
                for rest, values in joined.items():
                    if len(values) > 1:
                        found = [atoms for atoms in found if not (rest < atoms and atoms - rest <= {_equal(left, (v,)) for v in values})]
                        found.append(rest | {_equal(left, sorted(values))})
        yield from found

    def _atoms(self, cube: Mask) -> list[Compare]:
        listed = [(atom, self.where(atom)) for variable in self._domains for atom in self._said(variable, cube)]
        pairs: dict[tuple[Term, ...], tuple[Compare, Mask]] = {}
        for compare, mask in self._pairs:
            if cube & ~mask == 0:
                pairs.setdefault(compare.terms, (compare, mask))
        listed += pairs.values()
        for entry in tuple(listed):
            rest = [other for other in listed if other is not entry]
            if reduce(and_, (mask for _, mask in rest), self.all) == cube:
                listed = rest
        return [atom for atom, _ in listed]

    def _said(self, variable: Variable, cube: Mask) -> Iterator[Compare]:
        """What holds of one variable in some worlds, as far as comparisons can say it."""
        term, word = variable
        left, type_ = self._names[term], self.types[term]
        values = [value for value, mask in self._values[variable].items() if mask & cube]
        if None in values:
            return
        if word is not None:
            yield from [Compare(left=left, operator="contains", right=(word,))] * (values == [True])
        elif type_.type == "integer":
            lowest, highest = min(map(int, values)), max(map(int, values))
            if lowest == highest:
                yield _equal(left, (lowest,))
                return
            if highest < type_.highest:
                yield Compare(left=left, operator="<", right=(highest + 1,))
            if lowest > type_.lowest:
                yield Compare(left=left, operator=">", right=(lowest - 1,))
            elif highest == type_.highest and type_.default is None:
                yield Compare(left=left, operator=">=", right=(lowest,))
        elif {*values} <= {*self._constants(variable)} and (len(values) < len(self._domains[variable])):
            yield _equal(left, [value for value in type_.values if value in values] or sorted(values, key=str))


def _equal(left: Term, values: Collection[Scalar]) -> Compare:
    return Compare(left=left, operator="=" if len(values) == 1 else "in", right=tuple(values))


def _oriented(compare: Compare) -> Compare:
    """A comparison of two attributes, those of users on the left."""
    right = compare.right
    if not isinstance(right, Term) or compare.operator not in _MIRRORED or _order(compare.left) <= _order(right):
        return compare
    return Compare(left=right, operator=_MIRRORED[compare.operator], right=compare.left)


def _largest(masks: Iterable[Mask]) -> list[Mask]:
    found: list[Mask] = []
    for mask in sorted(masks, key=int.bit_count, reverse=True):
        if not any(mask & ~known == 0 for known in found):
            found.append(mask)
    return found


def _order(term: Term) -> tuple[object, ...]:
    """Sort key: attributes of users before those of entities and requests."""
    return KINDS.index(term.kind), term.attribute, repr(term.target)
