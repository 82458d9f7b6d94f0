"""Entities that are equivalent for the same subjects in some states, so that each question about them is decided once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, chain
from operator import or_
from typing import TypeAlias

from privtab.base import Entity, last_name
from privtab.engines import Index
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import ALWAYS
from privtab_analysis.entitlements.subjects import Numbers

OfEntity: TypeAlias = tuple[str | int, ...]
"""The type of an entity, and the numbers of the facts on its path."""
Right: TypeAlias = tuple[int, object, Numbers | None, int]
"""The number of an evaluator, a type of entities or another fact, the subjects, and bits of the index; `ALWAYS` for other facts."""
Key: TypeAlias = tuple[tuple[str, OfEntity], ...]
"""Equal for objects, by slot, of which a question has equal answers."""


def prefixes(path: str) -> Iterator[str]:
    """A path and its containers, from the root of all paths on."""
    yield ""
    if path:
        yield from accumulate(path.split("/"), "{}/{}".format)


class EntityEquivalence:
    """The equivalence of entities with ids that are paths, of types that do not nest, for evaluators of the same subjects."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = evaluators
        self._single: set[str] = set()
        """Names of entities and of paths that stand for principals or have rows below, so that more than the path tells their rights."""
        for evaluator in evaluators:
            below = chain(evaluator.index.owned_below, *evaluator.index.below.values())
            self._single |= {*(key.partition(":")[2] for key in below), *evaluator.subjects.names()}
        self._rights: dict[str, list[Right]] = {}
        self._numbers: dict[frozenset[object], int] = {frozenset(): 0}
        self._masks: dict[frozenset[str], Sequence[int]] = {}
        self._at: dict[tuple[str, frozenset[str]], int] = {}
        self._known: dict[tuple[Entity, frozenset[str]], OfEntity | None] = {}

    def key(self, objects: Mapping[str, Entity], privileges: frozenset[str]) -> Key | None:
        """The key of the objects of a question that depends on some privileges; None if no others are known to be like them."""
        found = []
        for slot, entity in objects.items():
            if (of_entity := self._of(entity, privileges)) is None:
                return None
            found.append((slot, of_entity))
        return tuple(found)

    def _of(self, entity: Entity, privileges: frozenset[str]) -> OfEntity | None:
        key = entity, privileges
        if key not in self._known:
            path = list(prefixes(entity.id))
            is_single = any(at and (at in self._single or last_name(at) in self._single) for at in path)
            numbers = (self._number(at, privileges) for at in path)
            self._known[key] = None if is_single else (entity.type, *numbers)
        return self._known[key]

    def _number(self, path: str, privileges: frozenset[str]) -> int:
        """Equal for paths on which the same facts are."""
        key = path, privileges
        if key not in self._at:
            if path not in self._rights:
                self._rights[path] = list(self._there(path))
            if privileges not in self._masks:
                self._masks[privileges] = [_mask(evaluator.index, privileges) for evaluator in self._evaluators]
            masks = self._masks[privileges]
            facts = ((side, what, held, bits & masks[side]) for side, what, held, bits in self._rights[path])
            of_path = frozenset(fact for fact in facts if fact[-1])
            self._at[key] = self._numbers.setdefault(of_path, len(self._numbers))
        return self._at[key]

    def _there(self, path: str) -> Iterator[Right]:
        """The facts of the subjects on a path: grants and ownership; and memberships, roles within scopes, attributes, which always count."""
        for side, evaluator in enumerate(self._evaluators):
            subjects, index = evaluator.subjects, evaluator.index
            for type_, table in index.tables.items():
                for principal, bits in table.get(path, {}).items():
                    if held := subjects.holders.get(principal):
                        yield side, type_, held, bits
            for type_, members in index.members.items():
                if users := members.get(path):
                    yield side, (type_, frozenset(subjects.number.keys() & users)), None, ALWAYS
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
