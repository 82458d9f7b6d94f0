"""The entities of two states, divided into classes whose entities get the same answers, and where they lie: their addresses.

The address of an entity is its path. Where ids are flat, it is the address of what contains the entity in both states, with a
name for the entity itself (`main/%folder:f1/%document:d7`). One that lies elsewhere in the other state, or nowhere, has moved: its
address begins with itself. So what lies below an address does so in both states.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from privtab.base import Entity, dataclass, last_name
from privtab.ir import Program, vocabulary
from privtab.state import State
from privtab_analysis.entitlements.equivalence import prefixes
from privtab_analysis.entitlements.universe import universe

# No name of a path begins with `%` and a lower case letter, since only `/` and `%` are escaped.
_FLAT = re.compile(r"(?:.*/)?%[a-z][a-z0-9_]*:(.*)", re.DOTALL)


Affected: TypeAlias = Literal["yes", "no", "either"]
"""The classes that changed rows affect, the classes that they do not affect, or all."""


@dataclass(frozen=True)
class EntityClass:
    """Entities of one type with equal answers: entities below a path but not below any of some deeper paths."""

    type: str
    paths: list[str]
    """All addresses of the type, sorted."""
    spans: tuple[tuple[int, int], ...]
    """The slices of `paths` in the class."""

    @cached_property
    def count(self) -> int:
        """The number of entities."""
        return sum(end - begin for begin, end in self.spans)

    @property
    def address(self) -> str:
        """The address of one of them, the first."""
        return self.paths[self.spans[0][0]]

    @property
    def first(self) -> Entity:
        """One of them."""
        return Entity(self.type, written(self.address))

    def __iter__(self) -> Iterator[Entity]:
        for begin, end in self.spans:
            for position in range(begin, end):
                yield Entity(self.type, written(self.paths[position]))

    def single(self) -> Iterator[EntityClass]:
        """Each of the entities as a class of its own."""
        for begin, end in self.spans:
            yield from (EntityClass(self.type, self.paths, ((at, at + 1),)) for at in range(begin, end))

    def addresses(self) -> Iterator[str]:
        """The addresses of the entities."""
        for begin, end in self.spans:
            yield from self.paths[begin:end]


class EntityTree:
    """The entities that states name, by type and address, and the entities that `entitlements.universe.Universe` adds."""

    def __init__(self, program: Program, *states: State) -> None:
        self.addresses = Addresses(program, states)
        found = _sorted(_placed(program, states, self.addresses)) if program.flat else _paths(program, *states)
        self.paths: dict[str, list[str]] = {**found, "": [""]}
        self.nested = program.nested_on
        self._levels: dict[str, tuple[int, int]] = {}

    def named(self, types: Collection[str]) -> Mapping[str, set[str]]:
        """By name, the addresses of the entities of some types that a principal's name may refer to."""
        found: dict[str, set[str]] = {}
        for type_ in types:
            for address in self.paths[type_]:
                path = written(address)
                found.setdefault(path, set()).add(address)
                found.setdefault(last_name(path), set()).add(address)
        return found

    def around(self, address: str) -> Iterator[str]:
        """An address and the addresses that contain its entities in either state, starting at the root."""
        yield from prefixes(address)
        outermost = address.partition("/")[0].removeprefix("%")
        if outermost in self.addresses.moved:
            yield from map(self.addresses.of, self.addresses.containers([outermost]))

    def span(self, type_: str, path: str) -> tuple[int, int, int, int]:
        """The slices of a type's paths that are the path itself, and that lie below it."""
        paths = self.paths[type_]
        if not path:
            root_end = bisect_left(paths, "\0") if paths and paths[0] == "" else 0
            return 0, root_end, root_end, len(paths)
        least, most = self.levels(type_)
        level = path.count("/")
        begin = end = 0
        if least <= level <= most:
            begin = bisect_left(paths, path)
            end = begin + (begin < len(paths) and paths[begin] == path)
        if level >= most:
            return begin, end, end, end
        first = bisect_left(paths, f"{path}/", end)
        return begin, end, first, bisect_left(paths, f"{path}0", first)

    def levels(self, type_: str) -> tuple[int, int]:
        """The least and the most slashes in addresses of a type."""
        if type_ not in self._levels:
            levels = {address.count("/") for address in self.paths[type_]}
            self._levels[type_] = min(levels, default=0), max(levels, default=-1)
        return self._levels[type_]

    def divided(self, cuts: Collection[str]) -> Division:
        """Divide the entities by paths: each belongs to the longest of these that is a prefix of its own, or is the root."""
        return Division(self, {*cuts, ""})


class Division:
    """A division of an entity tree by paths."""

    def __init__(self, tree: EntityTree, cuts: Collection[str]) -> None:
        self.tree = tree
        self.below: dict[str, list[str]] = {cut: [] for cut in cuts}
        for cut in cuts:
            if cut:
                self.below[self.nearest(cut.rpartition("/")[0])].append(cut)
        self._known: dict[tuple[str, str], list[EntityClass]] = {}
        self._spans: dict[tuple[str, str], tuple[int, int, int, int]] = {}
        self._listed: dict[str, list[tuple[str, EntityClass]]] = {}

    def nearest(self, path: str) -> str:
        """The longest of the paths that is a prefix of a path."""
        while path and path not in self.below:
            path = path.rpartition("/")[0]
        return path

    def under(self, roots: Collection[str], others: Collection[str] = ()) -> set[str]:
        """The paths at or below any of some of them, without the paths at or below `others` that are none of `roots`."""
        found: set[str] = set()
        pending = list(roots)
        while pending:
            cut = pending.pop()
            if cut not in found:
                found.add(cut)
                pending += (inner for inner in self.below[cut] if inner not in others)
        return found

    def of(self, type_: str, cut: str) -> list[EntityClass]:
        """The classes of a type at one of the paths: at most one or, where types nest, one for each number of levels."""
        key = type_, cut
        if key not in self._known:
            found = EntityClass(type_, self.tree.paths[type_], tuple(self._at(type_, cut)))
            if type_ in self.tree.nested:
                by_levels: dict[int, list[str]] = {}
                for address in found.addresses():
                    by_levels.setdefault(address.count("/"), []).append(address)
                self._known[key] = [EntityClass(type_, paths, ((0, len(paths)),)) for paths in by_levels.values()]
            else:
                self._known[key] = [found] if found.spans else []
        return self._known[key]

    def all(self, type_: str) -> list[tuple[str, EntityClass]]:
        """Every class of a type, with its path."""
        if type_ not in self._listed:
            self._listed[type_] = [*self.within(type_, self.below)]
        return self._listed[type_]

    def within(self, type_: str, cuts: Collection[str]) -> Iterator[tuple[str, EntityClass]]:
        """The classes of a type at some of the paths, with these."""
        _, most = self.tree.levels(type_)
        own = sorted(cut for cut in cuts if cut.count("/") <= most)
        return ((cut, class_) for cut in own for class_ in self.of(type_, cut))

    def _at(self, type_: str, cut: str) -> Iterator[tuple[int, int]]:
        """The slices of a type's paths at one of the paths."""
        path_begin, path_end, begin, end = self._span(type_, cut)
        if path_begin < path_end:
            yield path_begin, path_end
        if begin < end:
            inner = (self._span(type_, child) for child in self.below[cut])
            for first, last in sorted(part for child in inner for part in (child[:2], child[2:]) if part[0] < part[1]):
                if begin < first:
                    yield begin, first
                begin = last
            if begin < end:
                yield begin, end

    def _span(self, type_: str, cut: str) -> tuple[int, int, int, int]:
        """As `EntityTree.span`, which is needed of a path and of the one that it divides."""
        key = type_, cut
        if key not in self._spans:
            self._spans[key] = self.tree.span(type_, cut)
        return self._spans[key]


class DividedClasses:
    """The classes of a division, of which changed rows affect some."""

    def __init__(self, division: Division, under: Collection[str]) -> None:
        """`under`: the paths of the division at which classes are affected."""
        self._division = division
        self._under = under
        self._known: dict[tuple[str, Affected], Sequence[tuple[str, EntityClass]]] = {}

    @staticmethod
    def affected_from(position: int, slots: int) -> list[Affected]:
        """For each of some slots, the classes if the first affected object is at a position: none before it, and any after it.

        >>> DividedClasses.affected_from(1, 3)
        ['no', 'yes', 'either']
        """
        return ["no" if place < position else "yes" if place == position else "either" for place in range(slots)]

    def of(self, type_: str, affected: Affected) -> Sequence[tuple[str, EntityClass]]:
        """The classes of a type, with the paths by which they are divided."""
        key = type_, affected
        if key not in self._known:
            if affected == "yes":
                self._known[key] = [*self._division.within(type_, self._under)]
            else:
                every = self._division.all(type_)
                self._known[key] = [own for own in every if own[0] not in self._under] if affected == "no" else every
        return self._known[key]


def _paths(program: Program, first: State, *others: State) -> dict[str, list[str]]:
    """The paths of all entities, sorted, by type; those of the first state are kept with it."""
    key = ("paths", tuple(program.entities.values()))
    if key not in first.derived:
        first.derived[key] = _sorted(_named(program, [first]))
    known: dict[str, list[str]] = first.derived[key]
    found: dict[str, list[str]] = {}
    for type_, paths in _named(program, others).items():
        new = paths.difference(known[type_]) if paths else paths
        found[type_] = sorted([*known[type_], *new]) if new else known[type_]
    return found


def _sorted(paths: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {type_: sorted(of_type) for type_, of_type in paths.items()}


def _named(program: Program, states: Iterable[State]) -> dict[str, set[str]]:
    """The paths of all entities, by type, where the paths tell their containers."""
    found: dict[str, set[str]] = {type_: set() for type_ in program.entities}
    for key in {key for state in states for key in state.named_entities()}:
        type_, _, path = key.partition(":")
        found[type_].add(path)
    in_order = sorted(program.entities.values(), key=lambda type_: len(program.chain(type_.name)))
    for link in reversed(in_order):
        if link.parent is not None:
            own = found[link.name]
            if link.nested:
                own |= {outer for path in own for outer in _levels_around(path, program.depth(link.name))}
                own = {path for path in own if path.count("/") + 1 == program.depth(link.name)}
            found[link.parent] |= own if link.single else {path.rpartition("/")[0] for path in own}
    for link in in_order:
        if link.single and link.parent is not None:
            found[link.name] |= found[link.parent]
    return found


def _placed(program: Program, states: Iterable[State], addresses: Addresses) -> dict[str, set[str]]:
    """The addresses of all entities that lie somewhere in one of the states, by type."""
    found: dict[str, set[str]] = {type_: set() for type_ in program.entities}
    for state in states:
        for entity in universe(program, state):
            found[entity.type].add(addresses.of(str(entity)))
    return found


def _levels_around(path: str, outermost: int) -> Iterator[str]:
    """The entities of the same type around one that nests; `outermost`: the number of names of the outermost."""
    while path.count("/") >= outermost:
        path = path.rpartition("/")[0]
        yield path


class Addresses:
    """The addresses of the entities of some states."""

    def __init__(self, program: Program, states: Collection[State]) -> None:
        self._shapes = vocabulary(program).shapes
        self._places: list[Mapping[str, str]] = (
            [dict(state.texts("entities", "entity", "parent")) for state in states] if program.flat else []
        )
        placed = {key for places in self._places for key in places}
        self.moved = frozenset(key for key in placed if len({places.get(key) for places in self._places}) > 1)
        """The entities with flat ids that do not lie in the same entity in all states."""
        self._known: dict[str, str] = {}

    def of(self, key: str) -> str:
        """The address of an entity."""
        above = self._anchor(key)
        if above is None:
            return key.partition(":")[2]
        if above not in self._known:
            around = "" if above in self.moved else next(places.get(above, "") for places in self._places)
            outer = self.of(around) if around else ""
            self._known[above] = f"{outer}/%{above}" if outer else f"%{above}"
        _, _, rest = key.partition(":")[2].partition("/")
        return f"{self._known[above]}/{rest}" if rest else self._known[above]

    def containers(self, keys: Iterable[str]) -> set[str]:
        """Some entities, and the entities that contain them by any choice of rows of the states."""
        found: set[str] = set()
        waiting = [*keys]
        while waiting:
            key = waiting.pop()
            if key in found:
                continue
            found.add(key)
            entity = Entity.parse(key)
            shape = self._shapes[entity.type]
            if shape.flat is None:
                found.update(shape.keys(entity.id))
                continue
            found.update(shape.written.keys(entity.id))
            waiting += {places[above] for places in self._places if (above := shape.anchor(entity.id)) in places}
        return found

    def _anchor(self, key: str) -> str | None:
        """The entity with a flat id at which the path of an entity begins, as it is written; None if there is none."""
        if not self._places:
            return None
        type_, _, path = key.partition(":")
        shape = self._shapes[type_]
        return None if shape.flat is None else shape.anchor(path)


def written(address: str) -> str:
    """The path of an entity with an address, as requests and rows write it.

    >>> written("main/%folder:f1/%document:d7/c1"), written("main/a%2Fb")
    ('d7/c1', 'main/a%2Fb')
    """
    flat = _FLAT.fullmatch(address) if "%" in address else None
    return address if flat is None else flat[1]
