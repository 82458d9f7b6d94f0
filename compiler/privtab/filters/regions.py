"""From what a state names to a filter: the engine decides one entity for all of which it says the same.

A decision depends on a path only through the entities on it that rows about the caller name, and through names that the caller's
own name, groups and roles may be compared with. So paths with the same named beginning, and then names that nothing names, have the
same answer. Each of these regions is decided once, by the engine itself: nothing here knows what grants, denials or roles mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from privtab.base.errors import UnsupportedError
from privtab.base.names import encode_name, unencoded_name
from privtab.base.paths import PathShape, base_type, naming
from privtab.base.records import dataclass
from privtab.base.request import Entity, Request
from privtab.engines.conditions import Comparison, ConditionReader
from privtab.filters.concern import Concern
from privtab.filters.expression import NOTHING, Expression, OneOf, all_of, any_of, longest

Trie: TypeAlias = dict[str, "Trie"]
"""Encoded names, each with the names that follow it in the path of a named entity."""


@dataclass(frozen=True, slots=True)
class Split:
    """The paths with one beginning, by their next name: named paths, and all others."""

    named: Mapping[str, Region]
    other: Region


@dataclass(frozen=True, slots=True)
class Nest:
    """The paths with one beginning, by the path within the type that nests: named paths, and paths below each of them."""

    named: Mapping[str, Region]
    below: Mapping[str, Sequence[Region]]
    """By the path above, the regions of one further name that is not named, of two, and so on; "" for what lies below none."""


MOST_BRANCHES = 8
"""The most names of a level that an expression tells apart by what follows; more are said as paths, where these can say it."""
Region: TypeAlias = Split | Nest | int
"""Paths; a number is the position of the entity that stands for all of them."""


class Beginning(NamedTuple):
    """The beginning of paths, unencoded names, and whether paths that begin so are allowed unless a longer one says otherwise."""

    names: tuple[str, ...]
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """The paths of a type, divided by what the state says of one caller."""

    levels: tuple[str, ...]
    """The type of each name."""
    bounds: Mapping[str, int]
    """The most names of the level that nests, if one does; its names are paths."""
    whole: Region
    examples: tuple[Entity, ...]
    """One entity for each region."""

    def expression(self, allowed: Sequence[bool]) -> Expression:
        """The condition under which a request is allowed, from the answers for the examples."""
        return self._expression(self.whole, 0, allowed)

    def _expression(self, region: Region, depth: int, allowed: Sequence[bool]) -> Expression:
        if isinstance(region, Nest):
            return any_of(self._nested(region, depth, allowed))
        if not isinstance(region, Split):
            if not allowed[region]:
                return NOTHING
            return all_of(OneOf(level, (), other=True) for level in self.levels[depth:])
        level = self.levels[depth]
        by_rest: dict[Expression, list[str]] = {}
        for name, inner in region.named.items():
            by_rest.setdefault(self._expression(inner, depth + 1, allowed), []).append(unencoded_name(name))
        rest = self._expression(region.other, depth + 1, allowed)
        by_rest.pop(rest, None)
        if len(by_rest) > MOST_BRANCHES:
            with suppress(UnsupportedError):
                return longest(self.levels[depth:], list(self._beginnings(region, (), allowed, above=False)))
        excluded = tuple(sorted(name for names in by_rest.values() for name in names))
        listed = [(OneOf(level, tuple(sorted(names))), inner) for inner, names in by_rest.items()]
        return any_of(all_of(pair) for pair in (*listed, (OneOf(level, excluded, other=True), rest)))

    def beginnings(self, allowed: Sequence[bool]) -> Iterator[Beginning]:
        """The beginnings of paths below which something else is allowed than above. Raises UnsupportedError for what these cannot say."""
        yield from self._beginnings(self.whole, (), allowed, above=False)

    def _beginnings(
        self, region: Region, names: tuple[str, ...], allowed: Sequence[bool], *, above: bool
    ) -> Iterator[Beginning]:
        other = region.other if isinstance(region, Split) else region
        if not isinstance(other, int):
            raise UnsupportedError(
                f"rows cannot say what is allowed on `{self.levels[-1]}`: only a condition with its names can"
            )
        if allowed[other] is not above:
            yield Beginning(names, allowed[other])
        if isinstance(region, Split):
            for name, inner in region.named.items():
                yield from self._beginnings(inner, (*names, unencoded_name(name)), allowed, above=allowed[other])

    def _nested(self, region: Nest, depth: int, allowed: Sequence[bool]) -> Iterator[Expression]:
        """For each of the paths that are named: itself, and what lies below it; what is the same in a whole branch is said at its top."""
        level = self.levels[depth]
        inside: dict[str, list[str]] = {path: [] for path in region.below}
        for path in region.named:
            inside[path.rpartition("/")[0]].append(path)
        here = {path: self._expression(inner, depth + 1, allowed) for path, inner in region.named.items()}
        # Below a path of the most names there is nothing, so it does not matter what is said of that.
        below = {
            path: self._below(path, depth, inner, allowed) if inner else here[path]
            for path, inner in region.below.items()
        }
        alike: dict[str, Expression] = {}
        for path in sorted(inside, key=lambda path: path.count("/") + bool(path), reverse=True):
            rest = below[path]
            if here.get(path, rest) == rest and all(alike.get(inner) == rest for inner in inside[path]):
                alike[path] = rest
        names: dict[Expression, list[str]] = {}
        branches: dict[Expression, list[str]] = {}
        pending = [""]
        while pending:
            path = pending.pop()
            if path in alike:
                names.setdefault(alike[path], []).extend([path] if path else [])
                branches.setdefault(alike[path], []).append(path)
                continue
            if path:
                names.setdefault(here[path], []).append(path)
            pending += inside[path]
            others = OneOf(level, tuple(sorted(inside[path])), other=True, above=tuple(sorted(inside[path])))
            around = (OneOf(level, (), above=(path,)),) if path else ()
            yield all_of([*around, others, below[path]])
        for rest in dict.fromkeys((*names, *branches)):
            above = branches.get(rest, [])
            some = OneOf(level, tuple(sorted(names.get(rest, ()))), above=tuple(sorted(above)))
            yield all_of([OneOf(level, (), other=True) if "" in above else some, rest])

    def _below(self, path: str, depth: int, regions_: Sequence[Region], allowed: Sequence[bool]) -> Expression:
        """The condition that holds below a path, however far."""
        found = {self._expression(inner, depth + 1, allowed) for inner in regions_}
        if len(found) > 1:
            raise UnsupportedError(
                f"what is allowed below `{path}` depends on how many names of `{self.levels[depth]}` follow, which a filter cannot say"
            )
        return found.pop()


def regions(reader: ConditionReader, request: Request, concern: Concern, comparisons: Iterable[Comparison]) -> Regions:
    """The regions of the type of a request's resource, whose operation compares attributes so.

    Raises UnsupportedError for what columns cannot say.
    """
    type_ = request.resource.type
    shape = reader.shapes[type_]
    types = {name for name, _ in shape.written.chain}
    # Conditions may ask about what each of these has one of: that has the same path.
    chains = reader.chains
    types |= {
        name for name in chains if any(type_ in types and depth == chains[name][-1][1] for type_, depth in chains[name])
    }
    compared = {base_type(operand.type) for one in comparisons for operand in one.operands if operand.held}
    attributed = (key for key in concern.attributed if key.partition(":")[0] in compared)
    trie: Trie = {}
    # A request may give attributes of its objects, and these may lie on the path.
    for key in sorted({*concern.keys, *attributed, *map(str, request.with_.values())}):
        if (type_ := key.partition(":")[0]) in types:
            _insert(trie, _columns(reader.shapes[type_].written, key.partition(":")[2]))
    words = concern.words | {request.user}
    if any(reader.principal[type_] is not None for type_ in types):
        if shape.written.nested is not None:
            raise UnsupportedError(
                f"a filter cannot compare names on paths of several lengths, as those of `{request.resource.type}`"
            )
        for names in (word.split("/") for word in sorted(words)):
            if all(map(_is_name, names)):
                _insert(trie, names[: shape.depth])
    if shape.flat is not None:
        # Only the state tells where entities with flat ids lie, so each of them is a region of its own.
        flat = f"{shape.chain[shape.flat][0]}:"
        for key in sorted(concern.places):
            if key.startswith(flat):
                trie.setdefault(key.partition(":")[2], {})
    return _Division(reader, request, words, shape.written, trie).regions()


def _nested_at(shape: PathShape) -> int | None:
    """The position among the names, if the names of a type that nests are one."""
    return None if shape.nested is None else shape.chain[shape.nested][1] - 1


def _columns(shape: PathShape, path: str) -> list[str]:
    """The names of a path, with the names of the type that nests as one."""
    names = path.split("/")
    first = _nested_at(shape)
    if first is None:
        return names
    last = len(names) - (shape.depth - first - 1)
    return [*names[:first], "/".join(names[first:last]), *names[last:]]


def _insert(trie: Trie, names: Iterable[str]) -> None:
    for name in names:
        if name:
            trie = trie.setdefault(name, {})


class _Division:
    """Divides the paths of a type."""

    def __init__(
        self, reader: ConditionReader, request: Request, words: Iterable[str], shape: PathShape, trie: Trie
    ) -> None:
        self._type = request.resource.type
        self._levels = naming(shape.chain)
        self._nested = _nested_at(shape)
        self._bound = shape.bound
        self._trie = trie
        self._examples: list[Entity] = []
        # Conditions compare names of principals wherever these lie.
        names = tuple(sorted({written for word in words for written in (encode_name(word), word) if _is_name(written)}))
        self._compared = [names if reader.principal[level] is not None else () for level in self._levels]
        used = {part for names_ in _names(trie) for name in names_ for part in name.split("/")} | set(names)
        self._unnamed = next(name for number in range(len(used) + 1) if (name := f"unnamed{number}") not in used)

    def regions(self) -> Regions:
        whole = self._region((), self._trie)
        bounds = {} if self._nested is None else {self._levels[self._nested]: self._bound}
        return Regions(levels=self._levels, bounds=bounds, whole=whole, examples=tuple(self._examples))

    def _region(self, names: tuple[str, ...], named: Trie) -> Region:
        depth = len(names)
        if depth == self._nested:
            return self._nest(names, named)
        nests = self._nested is not None and depth <= self._nested
        if depth == len(self._levels) or not (named or nests or any(self._compared[depth:])):
            missing = len(self._levels) - depth
            self._examples.append(Entity(self._type, "/".join((*names, *[self._unnamed] * missing))))
            return len(self._examples) - 1
        nexts: Trie = {**{name: {} for name in self._compared[depth]}, **named}
        return Split(
            {name: self._region((*names, name), inner) for name, inner in nexts.items()},
            self._region((*names, self._unnamed), {}),
        )

    def _nest(self, names: tuple[str, ...], named: Trie) -> Nest:
        above = {""} | {
            "/".join(parts[:count]) for path in named for parts in [path.split("/")] for count in range(len(parts) + 1)
        }
        further = [self._unnamed] * self._bound
        below: dict[str, list[Region]] = {}
        for path in sorted(above):
            left = self._bound - (path.count("/") + bool(path))
            longer = ["/".join((*([path] if path else []), *further[:count])) for count in range(1, left + 1)]
            below[path] = [self._region((*names, inner), {}) for inner in longer]
        return Nest({path: self._region((*names, path), named.get(path, {})) for path in sorted(above - {""})}, below)


def _names(trie: Trie) -> Iterator[Iterable[str]]:
    yield trie
    for inner in trie.values():
        yield from _names(inner)


def _is_name(word: str) -> bool:
    """Return whether a word can stand in a path as it is."""
    return bool(word) and "/" not in word and encode_name(unencoded_name(word)) == word
