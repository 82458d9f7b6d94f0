"""Entities that are equivalent for the same subjects in some states, so that each question about them is decided once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, chain
from operator import or_
from typing import Generic, TypeAlias, TypeVar

from privtab.base import last_name
from privtab.engines import Index
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import ALWAYS
from privtab_analysis.entitlements.subjects import Numbers

T = TypeVar("T")
OfEntity: TypeAlias = tuple[str | int, ...]
"""The type of an entity, and the numbers of the facts on its path."""
Right: TypeAlias = tuple[int, object, Numbers | None, int]
"""The number of an evaluator, a type of entities or another fact, the subjects, and bits of the index; `ALWAYS` for other facts."""
Key: TypeAlias = tuple[tuple[str, int], ...]
"""Equal for objects, by slot, of which a question has equal answers."""


def prefixes(path: str) -> Iterator[str]:
    """A path and its containers, from the root of all paths on."""
    yield ""
    if path:
        yield from accumulate(path.split("/"), "{}/{}".format)


class Numbering(Generic[T]):
    """Numbers for things, in the order in which they come."""

    def __init__(self) -> None:
        self.all: list[T] = []
        self._numbers: dict[T, int] = {}

    def of(self, thing: T) -> int:
        """The number of a thing; equal things have one."""
        number = self._numbers.setdefault(thing, len(self.all))
        if number == len(self.all):
            self.all.append(thing)
        return number


class EntityEquivalence:
    """The equivalence of entities with ids that are paths, of types that do not nest, for evaluators of the same subjects."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = evaluators
        self._single: set[str] = set()
        """Names of entities and of paths that stand for principals or have rows below, so that more than the path tells their rights."""
        for evaluator in evaluators:
            below = chain(evaluator.index.owned_below, *evaluator.index.below.values())
            self._single |= {*(key.partition(":")[2] for key in below), *evaluator.subjects.names()}
        self._facts: Numbering[frozenset[Right]] = Numbering()
        """The facts on paths."""
        self._alike: Numbering[OfEntity] = Numbering()
        self._masks: dict[frozenset[str], Sequence[int]] = {}
        self._at: dict[str, int | None] = {}
        self._masked: dict[tuple[int, frozenset[str]], int] = {}
        self._known: dict[tuple[tuple[str, str], frozenset[str]], int | None] = {}
        self._same: dict[int, bool] = {}

    def key(self, objects: Mapping[str, tuple[str, str]], privileges: frozenset[str]) -> Key | None:
        """The key of the objects (type, path) of a question that depends on some privileges; None if no others are known to be like them."""
        found = []
        for slot, entity in objects.items():
            key = entity, privileges
            if key not in self._known:
                self._known[key] = self._of(entity, privileges)
            if (number := self._known[key]) is None:
                return None
            found.append((slot, number))
        return tuple(found)

    def same(self, key: Key) -> bool:
        """Return whether the facts about objects with a key are the same for all evaluators."""
        return all(self._is_same(int(facts)) for _, number in key for facts in self._alike.all[number][1:])

    def _is_same(self, number: int) -> bool:
        if number not in self._same:
            sides: list[set[object]] = [set() for _ in self._evaluators]
            for side, *fact in self._facts.all[number]:
                sides[side].add(tuple(fact))
            self._same[number] = all(facts == sides[0] for facts in sides)
        return self._same[number]

    def _of(self, entity: tuple[str, str], privileges: frozenset[str]) -> int | None:
        """Equal for entities of which a question that depends on some privileges has equal answers."""
        type_, path = entity
        on_path = [self._number(at) for at in prefixes(path)]
        numbers = [self._with_mask(number, privileges) for number in on_path if number is not None]
        return self._alike.of((type_, *numbers)) if len(numbers) == len(on_path) else None

    def _number(self, path: str) -> int | None:
        """Equal for paths on which the same facts are; None if more than these tell the rights there."""
        if path not in self._at:
            is_single = path and (path in self._single or last_name(path) in self._single)
            self._at[path] = None if is_single else self._facts.of(frozenset(self._there(path)))
        return self._at[path]

    def _with_mask(self, number: int, privileges: frozenset[str]) -> int:
        """The number of the facts that concern some privileges."""
        key = number, privileges
        if key not in self._masked:
            if privileges not in self._masks:
                self._masks[privileges] = [_mask(evaluator.index, privileges) for evaluator in self._evaluators]
            masks = self._masks[privileges]
            facts = ((side, what, held, bits & masks[side]) for side, what, held, bits in self._facts.all[number])
            self._masked[key] = self._facts.of(frozenset(fact for fact in facts if fact[-1]))
        return self._masked[key]

    def _there(self, path: str) -> Iterator[Right]:
        """The facts of the subjects on a path: grants and ownership; and memberships, roles within scopes, attributes, which always count."""
        for side, evaluator in enumerate(self._evaluators):
            subjects, index = evaluator.subjects, evaluator.index
            for type_, table in index.tables.items():
                rights, holders = table.get(path, {}), subjects.holders
                # Of an entity at the top, few of the principals may be those of the subjects.
                for principal in rights if len(rights) <= len(holders) else holders:
                    if principal in rights and (held := holders.get(principal)):
                        yield side, type_, held, rights[principal]
            for type_, members in index.members.items():
                if users := members.get(path):
                    yield side, (type_, users.intersection(subjects.number)), None, ALWAYS
            for type_ in evaluator.reader.chains if subjects.within or index.entity_attributes else ():
                key = f"{type_}:{path}"
                yield from ((side, (key, *item), None, ALWAYS) for item in subjects.within.get(key, {}).items())
                if key in index.entity_attributes:
                    yield side, (key, repr(index.entity_attributes[key])), None, ALWAYS


def _mask(index: Index, privileges: Iterable[str]) -> int:
    """The bits of an index on which conditions with some privileges depend."""
    numbers = index.numbers
    bits = (numbers.allowed(privilege) | numbers.denied(privilege) for privilege in privileges)
    return reduce(or_, bits, numbers.owned | ALWAYS)
