"""Entities that are equivalent for the same subjects in some states, so that each question about them is decided once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TypeAlias

from privtab.base import Entity, last_name
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.subjects import Numbers

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

    def __init__(self, sides: Sequence[tuple[Evaluator, Numbers]]) -> None:
        """`sides`: in each state, the evaluator and the numbers of the subjects."""
        self._sides = sides
        self._single: set[str] = set()
        """Names of entities and of paths that stand for principals or have rows below, so that more than the path tells their rights."""
        for evaluator, among in sides:
            below = chain(evaluator.index.owned_below, *evaluator.index.below.values())
            self._single |= {*(key.partition(":")[2] for key in below), *evaluator.subjects.names(among)}
        self._held: dict[tuple[int, str], Numbers] = {}
        self._facts: dict[frozenset[object], int] = {frozenset(): 0}
        self._at: dict[str, int] = {}
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
            self._known[entity] = None if is_single else (entity.type, *map(self._number, path))
        return self._known[entity]

    def _number(self, path: str) -> int:
        """Equal for paths on which the same facts are."""
        if path not in self._at:
            self._at[path] = self._facts.setdefault(frozenset(self._there(path)), len(self._facts))
        return self._at[path]

    def _there(self, path: str) -> Iterator[object]:
        """The facts of the subjects on a path: grants and ownership, memberships, roles within scopes; and attributes."""
        for side, (evaluator, among) in enumerate(self._sides):
            subjects, index = evaluator.subjects, evaluator.index
            for type_, table in index.tables.items():
                for principal, bits in table.get(path, {}).items():
                    if held := self._holding(side, principal):
                        yield side, type_, held, bits
            for type_, members in index.members.items():
                if users := members.get(path):
                    yield side, type_, frozenset(number for number in among if subjects.all[number].user in users)
            for type_ in evaluator.reader.chains if subjects.within or index.entity_attributes else ():
                key = f"{type_}:{path}"
                for role, numbers in subjects.within.get(key, {}).items():
                    yield side, key, role, numbers & among
                if key in index.entity_attributes:
                    yield side, key, repr(index.entity_attributes[key])

    def _holding(self, side: int, principal: str) -> Numbers:
        """The subjects that have a principal."""
        key = side, principal
        if key not in self._held:
            evaluator, among = self._sides[side]
            self._held[key] = evaluator.subjects.of([principal]) & among
        return self._held[key]
