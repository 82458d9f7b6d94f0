"""The types on the paths of entities, from the root down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from privtab._once import once

if TYPE_CHECKING:
    from privtab.ir.nodes import EntityType


@once
def chains(entities: Mapping[str, EntityType]) -> Mapping[str, tuple[str, ...]]:
    """`Program.chain` of every type; programs that share their types share it."""
    return {name: tuple(reversed(list(_upwards(entities, name)))) for name in entities}


@once
def depths(entities: Mapping[str, EntityType]) -> Mapping[str, int]:
    """`Program.depth` of every type."""
    return {name: sum(not entities[link].single for link in chain) for name, chain in chains(entities).items()}


@once
def nested_on(entities: Mapping[str, EntityType]) -> Mapping[str, str]:
    """For each type on whose path a type nests, that type."""
    return {name: outer for name, chain in chains(entities).items() for outer in chain if entities[outer].nested}


@once
def shared_root(entities: Mapping[str, EntityType]) -> str | None:
    """`Program.shared_root`."""
    roots = [entity for entity in entities.values() if entity.parent is None]
    return roots[0].name if len(roots) == 1 and roots[0].single else None


def _upwards(entities: Mapping[str, EntityType], name: str) -> Iterator[str]:
    current: str | None = name
    while current is not None:
        yield current
        current = entities[current].parent
