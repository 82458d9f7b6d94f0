"""The places of entities: the keys on their paths, for types with flat ids as the state tells it.

The id of an entity of a flat type is one name, and a row of the state names what contains it. Types below it that are not flat
continue the path from that id: `comment:d7/c1`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privtab.base.paths import PathShape
from privtab.base.request import Entity


class Locations:
    """The keys on the path of each entity.

    >>> drive = PathShape((("drive", 1),))
    >>> document = PathShape((("drive", 1), ("document", 2)), flat=1)
    >>> where = Locations({"drive": drive, "document": document}, {"document:d7": "drive:main"}, {"drive:main": ["drive:main"]})
    >>> where.find(Entity("document", "d7"))
    ['drive:main', 'document:d7']
    >>> where.find(Entity("document", "d8"))
    >>> where.find(Entity("document", "drive:main/"))
    ['drive:main']
    """

    def __init__(
        self, shapes: Mapping[str, PathShape], places: Mapping[str, str], containers: Mapping[str, Sequence[str]]
    ) -> None:
        """`places`: entity of a flat type → what contains it. `containers`: each of those → the keys on its path, its own last."""
        self.shapes = shapes
        self.places = places
        self.containers = containers

    def find(self, entity: Entity) -> list[str] | None:
        """The keys from the root to an entity, which is absent if unnamed; None if the state does not tell where it lies."""
        shape = self.shapes[entity.type]
        if shape.flat is None:
            return shape.keys(entity.id)
        if shape.names_container(entity.id):
            return self.find(Entity.parse(entity.id[:-1]))
        above = self.containers.get(self.places.get(shape.anchor(entity.id), ""))
        return None if above is None else [*above, *shape.written.keys(entity.id)]

    def keys(self, entity: Entity) -> list[str]:
        """As `find`, for an entity of which the state tells where it lies."""
        found = self.find(entity)
        if found is None:
            raise LookupError(f"no row tells where `{entity}` lies")
        return found

    def levels(self, entity: Entity, keys: Sequence[str]) -> int:
        """The number of levels of the type that nests on the path of an entity with these keys."""
        shape = self.shapes[entity.type]
        if shape.flat is None:
            return shape.levels(entity.id)
        return shape.levels_of(len(keys) + (not shape.named(entity.id)))

    def unplaced(self, entity: Entity) -> str | None:
        """The key of the entity with a flat id on whose place the path depends, if the state does not tell it."""
        shape = self.shapes[entity.type]
        if shape.flat is None:
            return None
        if shape.names_container(entity.id):
            return self.unplaced(Entity.parse(entity.id[:-1]))
        key = shape.anchor(entity.id)
        return None if key in self.places else key


def ids(keys: Sequence[str], depths: Sequence[int]) -> list[str]:
    """The ids of the entities on a path by the number of names that lie on it; `depths`: that number for each key.

    >>> ids(["drive:main", "folder:f1", "document:d7"], [1, 2, 3])
    ['', 'main', 'f1', 'd7']
    """
    found = [""]
    for key, depth in zip(keys, depths, strict=False):
        if depth == len(found):
            found.append(key.partition(":")[2])
    return found


def not_placed(keys: Sequence[str]) -> dict[str, str]:
    """Why a request about entities that no row of the state places is denied."""
    names = ", ".join(f"`{key}`" for key in sorted(set(keys)))
    return {"kind": "not_placed", "message": f"no row of the state tells where {names} lies"}
