"""Conditions on all entities of a type at once, for some subjects: for each subject an integer, with a bit for each entity.

`Evaluator` answers for one entity, which suits few entities and many subjects. Where few subjects meet a hundred thousand entities, as in
`what-can` and heat maps, each row of theirs marks a range of the sorted paths once, and a condition is `&` and `|` of integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import compress
from operator import and_, or_
from typing import TypeAlias, TypeVar

from privtab.base import Request, last_name
from privtab.engines import Atom, Condition
from privtab.ir import Feature, Program
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import atom_part

T = TypeVar("T")
Column: TypeAlias = int
"""Entities of a type: bit n stands for the n-th of the sorted paths."""
Marks: TypeAlias = list[Column]
"""The entities for each subject, in the order of their numbers."""
_DIGITS = bytes.maketrans(b"01", b"\0\1")


def chosen(column: Column, values: Sequence[T]) -> Iterator[T]:
    """The values at the positions of a column.

    >>> list(chosen(0b101, "abcd"))
    ['a', 'c']
    """
    return compress(values, f"{column:b}"[::-1].encode().translate(_DIGITS))


def marked(ranges: Iterable[tuple[int, int]], size: int) -> Column:
    """The column of some ranges of positions below `size`.

    >>> bin(marked([(0, 1), (2, 4)], 5))
    '0b1101'
    """
    found = bytearray(size // 8 + 1)
    for begin, end in ranges:
        first, last = begin >> 3, end >> 3
        below, to = (1 << (begin & 7)) - 1, (1 << (end & 7)) - 1
        if first == last:
            found[first] |= to & ~below
        else:
            found[first] |= 255 & ~below
            found[first + 1 : last] = b"\xff" * (last - first - 1)
            found[last] |= to
    return int.from_bytes(found, "little")


class Columns:
    """The entities of a type on which conditions hold, for each subject of an evaluator."""

    def __init__(self, evaluator: Evaluator, type_: str, paths: Sequence[str]) -> None:
        """`paths`: those of the entities, sorted; the type may be empty, for the root."""
        self._evaluator = evaluator
        self._subjects = evaluator.subjects
        self._index = evaluator.index
        self._chains = evaluator.reader.chains
        self._depth = self._chains[type_][-1][1] if type_ else 0
        self.paths = paths
        self.every: Column = (1 << len(paths)) - 1
        self._places_of = {number: place for place, number in enumerate(sorted(self._subjects.everyone))}
        """By the number of a subject, its place in `Marks`."""
        self._nothing: Marks = [0] * len(self._places_of)
        self._atoms: dict[Atom, Marks] = {}
        self._ranges: dict[str, dict[tuple[str, int], list[tuple[int, int]]]] = {}
        self._painted: dict[tuple[str, str, int], Column] = {}
        self._rows: dict[tuple[str, int], Marks] = {}

    @staticmethod
    def fit(program: Program) -> bool:
        """Return whether the paths of entities and the rows on them tell everything that conditions of a program ask about."""
        beyond = (Feature.FLAT, Feature.NESTED, Feature.BELOW, Feature.ATTRIBUTES)
        return not any(feature.used_by(program) for feature in beyond)

    def allowed(self, request: Request) -> Marks:
        """The entities on which subjects are allowed a request that is about one of them, regardless of its user."""
        question = self._evaluator.question(request)
        return self._nothing if question is None else self.where(question.form.plan.condition)

    def where(self, condition: Condition) -> Marks:
        """The entities on which a condition holds that is about them alone."""
        return self.folded(condition, self.atom)

    def folded(self, condition: Condition, of_atom: Callable[[Atom], Marks]) -> Marks:
        """The entities on which a condition holds, from those on which its atoms hold."""
        return condition.fold(of_atom, self._all, self._any)

    def atom(self, atom: Atom) -> Marks:
        """The entities on which an atom holds, whatever the slot of its entity."""
        if atom not in self._atoms:
            match atom.kind:
                case "has":
                    self._atoms[atom] = self._having(atom)
                case "owner":
                    self._atoms[atom] = self._marks(atom.type, self._index.numbers.owned)
                case _:
                    self._atoms[atom] = self._each(atom)
        return self._atoms[atom]

    def below(self, path: str, depth: int) -> tuple[int, int]:
        """The positions of the entities at or below one with a path of `depth` names."""
        if not depth:
            return 0, len(self.paths)
        if depth < self._depth:
            return bisect_left(self.paths, f"{path}/"), bisect_left(self.paths, f"{path}0")
        begin = bisect_left(self.paths, path)
        return begin, begin + (begin < len(self.paths) and self.paths[begin] == path)

    def _all(self, parts: Iterable[Marks]) -> Marks:
        return [reduce(and_, own, self.every) for own in zip([self.every] * len(self._nothing), *parts, strict=True)]

    def _any(self, parts: Iterable[Marks]) -> Marks:
        return [reduce(or_, own, 0) for own in zip(self._nothing, *parts, strict=True)]

    def _having(self, atom: Atom) -> Marks:
        """The entities on which a privilege is granted to subjects, on themselves or above, and not denied, and those that they own."""
        part, numbers = atom_part(atom, self._evaluator.engine), self._index.numbers
        links = [type_ for type_, _ in part.chain]
        found = self._any(self._marks(type_, numbers.allowed(atom.privilege)) for type_ in links)
        found = self._any([found, *(self._by_default(type_, atom.privilege) for type_ in links)])
        if self._evaluator.semantics.denies:
            denied = self._any(self._marks(type_, numbers.denied(atom.privilege)) for type_ in links)
            found = [own & ~without for own, without in zip(found, denied, strict=True)]
        return self._any([found, *(self._marks(type_, numbers.owned) for type_ in links if part.owned)])

    def _marks(self, type_: str, bit: int) -> Marks:
        """The entities that are, or lie in, one of a type on which subjects have a bit."""
        if (type_, bit) not in self._rows:
            found = list(self._nothing)
            for principal, bits in self._held(type_):
                if bits & bit:
                    column = self._column(type_, principal, bits)
                    for number in self._subjects.holders[principal]:
                        found[self._places_of[number]] |= column
            self._rows[type_, bit] = found
        return self._rows[type_, bit]

    def _held(self, type_: str) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """By principal and bits, the positions of the entities that are, or lie in, one of a type on which the principal has them."""
        if type_ not in self._ranges:
            found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
            depth = self._chains[type_][-1][1]
            holders = self._subjects.holders
            table = self._index.table(type_)
            # Of the rows of many subjects, few may be about these entities.
            few = len(self.paths) < len(table)
            places = self._places(depth) if few else ((path, self.below(path, depth)) for path in table)
            for path, span in places:
                for principal, bits in table.get(path, {}).items() if span[0] < span[1] else ():
                    if principal in holders:
                        found[principal, bits].append(span)
            self._ranges[type_] = found
        return self._ranges[type_]

    def _column(self, type_: str, principal: str, bits: int) -> Column:
        key = type_, principal, bits
        if key not in self._painted:
            self._painted[key] = marked(self._ranges[type_][principal, bits], len(self.paths))
        return self._painted[key]

    def _by_default(self, type_: str, privilege: str) -> Marks:
        """The entities that are, or lie in, one of a type on which declared roles give a privilege, everywhere or within scopes."""
        roles = [role for role, grants in self._evaluator.semantics.roles.items() if privilege in grants.get(type_, ())]
        found = list(self._nothing)
        for number in self._subjects.of(roles):
            found[self._places_of[number]] = self.every
        links = dict(self._chains[type_])
        for scope, within in self._subjects.within.items() if roles else ():
            kind, _, path = scope.partition(":")
            if kind in links:
                column = marked([self.below(path, links[kind])], len(self.paths))
                for number in {n for role in roles for n in within.get(role, ())}:
                    found[self._places_of[number]] |= column
        return found

    def _each(self, atom: Atom) -> Marks:
        """The entities on which an atom holds that asks the evaluator about one entity at a time: the few that can differ."""
        found, part = list(self._nothing), atom_part(atom, self._evaluator.engine)
        members = self._index.members.get(atom.type, {}) if atom.kind == "member" else {}
        for path, span in self._places(part.depth):
            if not atom.type or path in members or path in self._names or last_name(path) in self._names:
                column = marked([span], len(self.paths))
                for number in self._evaluator.direct(part, path):
                    found[self._places_of[number]] |= column
        return found

    @cached_property
    def _names(self) -> set[str]:
        return self._subjects.names()

    def _places(self, depth: int) -> Iterator[tuple[str, tuple[int, int]]]:
        """The entities with paths of `depth` names at or above those of the type, and the positions of what lies in them."""
        begin = 0
        while begin < len(self.paths):
            path = "/".join(self.paths[begin].split("/", depth)[:depth])
            span = (begin, begin + 1) if depth == self._depth else self.below(path, depth)
            yield path, span
            begin = span[1]
