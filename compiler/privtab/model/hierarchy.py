"""The forest of entity types."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from privtab.ir.nodes import EntityType


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Which entity type contains which; chains are computed once."""

    entities: Mapping[str, EntityType]
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    singles: dict[str, list[str]] = field(default_factory=dict, repr=False)
    types_below: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def chain(self, type_: str) -> tuple[str, ...]:
        """The types on the path of a `type_` entity, from the root to itself."""
        todo: list[str] = []
        current: str | None = type_
        while current is not None and current not in self.chains:
            todo.append(current)
            current = self.entities[current].parent
        chain = self.chains[current] if current is not None else ()
        for name in reversed(todo):
            chain = (*chain, name)
            self.chains[name] = chain
        return chain

    def within(self, type_: str, outer: str) -> bool:
        """Whether `type_` is `outer` or lies below it."""
        return outer in self.chain(type_)

    def reaches(self, type_: str, target: str) -> bool:
        """Whether the path of a `type_` entity leads to one `target`: an ancestor, itself, or a `single` type attached to one of these."""
        current: str | None = target
        chain = self.chain(type_)
        while current is not None and current not in chain:
            entity = self.entities[current]
            current = entity.parent if entity.single else None
        return current is not None

    def targets(self, type_: str) -> tuple[str, ...]:
        """Every type that a condition about a `type_` entity can name: its path from the root down, then `single` types attached to it."""
        if not self.singles:
            for entity in self.entities.values():
                if entity.single and entity.parent is not None:
                    self.singles.setdefault(entity.parent, []).append(entity.name)
        named = list(self.chain(type_))
        for name in named:
            named.extend(single for single in self.singles.get(name, ()) if single not in named)
        return tuple(named)

    def below(self, type_: str) -> AbstractSet[str]:
        """The types of entities strictly below one of a type; the type itself, too, if it nests."""
        if not self.types_below:
            for name, entity in self.entities.items():
                self.types_below.setdefault(name, set()).update([name] if entity.nested else [])
                for outer in self.chain(name)[:-1]:
                    self.types_below.setdefault(outer, set()).add(name)
        return self.types_below[type_]

    def inside(self, type_: str) -> tuple[str, ...]:
        """`type_` and everything below it, in the order of the file."""
        return tuple(name for name in self.entities if self.within(name, type_))
