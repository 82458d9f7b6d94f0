"""Paths of entities whose types may nest or have flat ids: which names belong to which type, and the keys on the way.

A type that nests contains entities of itself, so the paths of its entities, and of what lies below, have no fixed depth. At most one
type on a path nests; therefore the number of names alone tells how many levels a path has. Level 1 is the outermost.

`namespace/2` is the second level of the type `namespace`, and `table/2` a table in a namespace of that level: as types they have a
fixed depth.

The id of an entity of a flat type is one name, and a row of the state names what contains it. Types below it that are not flat
continue the path from that id: `comment:d7/c1`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from privtab.base.request import Entity

LEVELS = 16
"""The most levels of a type that nests, unless the policy says another number."""
MOST_LEVELS = 64
"""The largest number that a policy may say."""

Level: TypeAlias = Literal["nearest", "first", "any", "every", "parent"]
"""Which level of a type that nests is meant: the innermost on the path, the outermost, one of them, each, or the one around it."""
SEVERAL: tuple[Level, ...] = ("any", "every")
"""Those that may be several entities."""

Link: TypeAlias = tuple[str, int]
"""A type on a path, and the number of names in its own path; a type that nests counts as one level."""


def at_level(type_: str, level: int) -> str:
    """The type of the entities of one level.

    >>> at_level("namespace", 2)
    'namespace/2'
    """
    return f"{type_}/{level}"


def base_type(type_: str) -> str:
    """The type as the policy names it.

    >>> base_type("namespace/2"), base_type("catalog")
    ('namespace', 'catalog')
    """
    return type_.partition("/")[0]


def level_of(type_: str) -> int:
    """The level of a type of one level; 0 for any other.

    >>> level_of("namespace/2"), level_of("catalog")
    (2, 0)
    """
    return int(type_.partition("/")[2] or 0)


def located(type_: str, level: Level, levels: int, outer: str | None) -> tuple[str, ...]:
    """The types of single levels that a target on a path with this many levels means; several for `any` and `every`.

    `type_` nests, or lies below a type that does; `outer` contains the type that nests.

    >>> located("namespace", "parent", 2, "catalog"), located("namespace", "parent", 1, "catalog")
    (('namespace/1',), ('catalog',))
    >>> located("namespace", "every", 2, "catalog")
    ('namespace/2', 'namespace/1')
    """
    match level:
        case "nearest":
            return (at_level(type_, levels),)
        case "first":
            return (at_level(type_, 1),)
        case "parent":
            assert outer is not None, "a type that nests has a type around it"
            return (at_level(type_, levels - 1) if levels > 1 else outer,)
        case "any" | "every":
            return tuple(at_level(type_, at) for at in range(levels, 0, -1))
        case _:
            assert_never(level)


def count_names(id_: str) -> int:
    """The number of names in a path; the last one may be empty.

    >>> count_names(""), count_names("c/a"), count_names("c/a/")
    (0, 2, 3)
    """
    return id_.count("/") + 1 if id_ else 0


def naming(links: Iterable[Link]) -> tuple[str, ...]:
    """The type to which each name of a path belongs: the first in its chain that has so many names."""
    found: list[str] = []
    for type_, depth in links:
        if depth > len(found):
            found.append(type_)
    return tuple(found)


class PathShape:
    """The paths of the entities of one type: `chain` from the root to the type itself.

    `nested`: the position in the chain of the type that nests, if one does; `bound`: the most levels that it has.
    `flat`: the position of the last type whose ids are flat, if there is one: paths are written from its entity on.

    >>> tables = PathShape((("catalog", 1), ("namespace", 2), ("table", 3)), nested=1, bound=16)
    >>> tables.keys("c/a/b/t")
    ['catalog:c', 'namespace:c/a', 'namespace:c/a/b', 'table:c/a/b/t']
    >>> tables.keys("c/a/b/"), tables.levels("c/a/b/")
    (['catalog:c', 'namespace:c/a', 'namespace:c/a/b'], 2)
    """

    __slots__ = ("bound", "chain", "depth", "flat", "nested", "written")

    def __init__(
        self, chain: Sequence[Link], nested: int | None = None, bound: int = 0, flat: int | None = None
    ) -> None:
        self.chain = tuple(chain)
        self.nested = nested
        self.bound = bound
        self.flat = flat
        self.depth = self.chain[-1][1]
        self.written = self if flat is None else PathShape(_beginning_at(self.chain, flat))
        """The shape of the ids that requests and rows use."""

    def levels(self, id_: str) -> int:
        """The number of levels of the type that nests; 1 if none does."""
        return 1 if self.nested is None else count_names(id_) - self.depth + 1

    def levels_of(self, keys: int) -> int:
        """The number of levels on a path with this many keys, its own among them; 1 if no type nests."""
        return 1 if self.nested is None else max(keys - len(self.chain) + 1, 1)

    def keys(self, id_: str) -> list[str]:
        """The keys of the entities on the path, from the root to the entity itself, which is absent if unnamed."""
        assert self.flat is None, "only the state tells where an entity with a flat id lies"
        names = id_.split("/") if id_ else []
        last = len(names)
        if names and not names[-1]:
            last -= 1
        if self.nested is None:
            links: Iterable[Link] = self.chain
        else:
            links = ((base_type(type_), depth) for type_, depth in self.links(self.levels(id_)))
        return [
            f"{type_}:{id_ if depth == len(names) else '/'.join(names[:depth])}"
            for type_, depth in links
            if depth <= last
        ]

    def links(self, levels: int) -> tuple[Link, ...]:
        """The chain of paths with this many levels, with a type for each level."""
        if self.nested is None:
            return self.chain
        nested, depth = self.chain[self.nested]
        return (
            *self.chain[: self.nested],
            *((at_level(nested, level), depth + level - 1) for level in range(1, levels + 1)),
            *((at_level(type_, levels), depth + levels - 1) for type_, depth in self.chain[self.nested + 1 :]),
        )

    def types(self, id_: str) -> tuple[str, ...]:
        """The type of each name in a path.

        >>> PathShape((("catalog", 1), ("namespace", 2), ("table", 3)), nested=1, bound=16).types("c/a/b/t")
        ('catalog', 'namespace/1', 'namespace/2', 'table/2')
        """
        return naming(self.links(self.levels(id_)))[: count_names(id_)]

    def named(self, id_: str) -> bool:
        """Return whether a path has the last name of its entity."""
        if self.flat is not None:
            return self.written.named(id_)
        return not id_.endswith("/") and (self.nested is not None or count_names(id_) == self.depth)

    def names_container(self, id_: str) -> bool:
        """Return whether an id names only what is around an entity with a flat id: `folder:f9/`."""
        return self.flat == len(self.chain) - 1 and id_.endswith("/")

    def anchor(self, id_: str) -> str:
        """The key of the entity with a flat id at which a written path begins.

        >>> PathShape((("drive", 1), ("file", 2), ("comment", 3)), flat=1).anchor("f7/c1")
        'file:f7'
        """
        assert self.flat is not None
        return f"{self.chain[self.flat][0]}:{id_.partition('/')[0]}"

    def unnamed_in(self, type_: str, id_: str) -> str | None:
        """The id, without the last name, of an entity in the given one; None if that lies too deep.

        >>> PathShape((("drive", 1), ("document", 2))).unnamed_in("drive", "main")
        'main/'
        >>> PathShape((("drive", 1), ("document", 2)), flat=1).unnamed_in("drive", "main")
        'drive:main/'
        """
        if self.flat == len(self.chain) - 1:
            return f"{type_}:{id_}/"
        if self.nested is not None and self.flat is None and count_names(id_) >= self.most:
            return None
        return id_ and f"{id_}/"

    def example(self) -> str:
        """The form of a path: `catalog/namespace/…/table`."""
        if self.flat is not None:
            return self.written.example()
        words: list[str] = []
        for at, (type_, depth) in enumerate(self.chain):
            if depth > len(words) - ("…" in words):
                words.append(type_)
            if at == self.nested:
                words.append("…")
        return "/".join(words)

    @property
    def most(self) -> int:
        """The most names that a path has."""
        return self.depth + (self.bound - 1 if self.nested is not None else 0)


class Chains(dict[str, tuple[Link, ...]]):
    """The chain of each type, also of the types of single levels, which are worked out when they are asked for."""

    def __init__(self, shapes: Mapping[str, PathShape]) -> None:
        super().__init__((name, shape.chain) for name, shape in shapes.items())
        self._shapes = dict(shapes)

    def __missing__(self, type_: str) -> tuple[Link, ...]:
        base, level = base_type(type_), level_of(type_)
        if not level or base not in self._shapes or self._shapes[base].nested is None:
            raise KeyError(type_)
        links = self[type_] = self._shapes[base].links(level)
        return links


def shapes_of(entities: Mapping[str, Any]) -> dict[str, PathShape]:
    """The shapes of all types, from a program's JSON."""
    bounds = {name: entity.get("nested", 0) for name, entity in entities.items()}
    flat = frozenset(name for name, entity in entities.items() if entity.get("flat"))
    return {
        name: path_shape([(link["type"], link["depth"]) for link in entity["chain"]], bounds, flat)
        for name, entity in entities.items()
    }


def path_shape(chain: Sequence[Link], bounds: Mapping[str, int], flat: Collection[str] = ()) -> PathShape:
    """The shape of a chain; `bounds`: the most levels of each type that nests, 0 for others; `flat`: the types with flat ids."""
    nested = next((at for at, (type_, _) in enumerate(chain) if bounds.get(type_)), None)
    last_flat = max((at for at, (type_, _) in enumerate(chain) if type_ in flat), default=None)
    return PathShape(chain, nested, 0 if nested is None else bounds[chain[nested][0]], last_flat)


def _beginning_at(chain: Sequence[Link], first: int) -> list[Link]:
    """The end of a chain, whose first type has one name."""
    before = chain[first][1] - 1
    return [(type_, depth - before) for type_, depth in chain[first:]]


class Locations:
    """The keys on the path of each entity.

    >>> drive = PathShape((("drive", 1),))
    >>> document = PathShape((("drive", 1), ("document", 2)), flat=1)
    >>> where = Locations({"drive": drive, "document": document}, {"document:d7": "drive:main"})
    >>> where.find(Entity("document", "d7"))
    ['drive:main', 'document:d7']
    >>> where.find(Entity("document", "d8"))
    >>> where.find(Entity("document", "drive:main/"))
    ['drive:main']
    """

    def __init__(
        self,
        shapes: Mapping[str, PathShape],
        places: Mapping[str, str],
        containers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`places`: entity of a flat type → what contains it. `containers`: each of those → the keys on its path, its own last."""
        self.shapes = shapes
        self.places = places
        self.containers = _containers(shapes, places) if containers is None else containers

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


def _containers(shapes: Mapping[str, PathShape], places: Mapping[str, str]) -> dict[str, list[str]]:
    """For each entity that contains one with a flat id, the keys on its path, its own last; none where a place is missing."""
    found: dict[str, list[str]] = {}
    for parent in places.values():
        waiting: list[str] = []
        seen: set[str] = set()
        at: str | None = parent
        while at is not None and at not in found and at not in seen:
            seen.add(at)
            waiting.append(at)
            entity = Entity.parse(at)
            shape = shapes[entity.type]
            if shape.flat is None:
                found[at] = shape.keys(entity.id)
                break
            at = places.get(shape.anchor(entity.id))
        for key in reversed(waiting):
            entity = Entity.parse(key)
            shape = shapes[entity.type]
            above = found.get(places.get(shape.anchor(entity.id), "")) if shape.flat is not None else None
            if above is not None:
                found[key] = [*above, *shape.written.keys(entity.id)]
    return found


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
