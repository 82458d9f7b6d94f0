"""Entities that are equivalent for the same subjects in some states, so that each question about them is decided once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TypeAlias

from privtab.base import Entity, last_name
from privtab_analysis.entitlements.evaluator import Evaluator

OfEntity: TypeAlias = tuple[str | int, ...]
"""The type of an entity, and the numbers of the facts on its path."""
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
        there: dict[str, set[object]] = defaultdict(set)
        self._single: set[str] = set()
        """Names of entities and of paths that stand for principals or have rows below, so that more than the path tells their rights."""
        for number, evaluator in enumerate(evaluators):
            for path, what in _there(evaluator):
                there[path].add((number, what))
            below = chain(evaluator.index.owned_below, *evaluator.index.below.values())
            self._single |= {*(key.partition(":")[2] for key in below), *evaluator.subjects.names()}
        numbers: dict[frozenset[object], int] = {}
        self._numbers = {path: numbers.setdefault(frozenset(what), len(numbers) + 1) for path, what in there.items()}
        self._known: dict[Entity, OfEntity | None] = {}

    def key(self, objects: Mapping[str, Entity]) -> Key | None:
        """The key of the objects of a question; None if no others are known to be like them."""
        found = []
        for slot, entity in objects.items():
            if (of_entity := self._of(entity)) is None:
                return None
            found.append((slot, of_entity))
        return tuple(found)

    def _of(self, entity: Entity) -> OfEntity | None:
        if entity not in self._known:
            path = list(prefixes(entity.id))
            is_single = any(at and (at in self._single or last_name(at) in self._single) for at in path)
            self._known[entity] = None if is_single else (entity.type, *(self._numbers.get(at, 0) for at in path))
        return self._known[entity]


def _there(evaluator: Evaluator) -> Iterator[tuple[str, object]]:
    """The facts of subjects on entities, by path: grants and ownership, memberships, roles within scopes; and attributes."""
    subjects, index = evaluator.subjects, evaluator.index
    for type_, table in index.tables.items():
        for path, holders in table.items():
            yield from (
                (path, (type_, subjects.holders[p], bits)) for p, bits in holders.items() if p in subjects.holders
            )
    for type_, members in index.members.items():
        for path, users in members.items():
            yield path, (type_, frozenset(subjects.number[user] for user in users if user in subjects.number))
    for scope, roles in subjects.within.items():
        yield scope.partition(":")[2], (scope, frozenset(roles.items()))
    for key, attributes in index.entity_attributes.items():
        yield key.partition(":")[2], (key, repr(attributes))
