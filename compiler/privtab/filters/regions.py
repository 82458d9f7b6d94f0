"""From what a state names to a filter: the engine decides one entity for all of which it says the same.

A decision depends on a path only through the entities on it that rows about the caller name, and through names that the caller's
own name, groups and roles may be compared with. So paths with the same named beginning, and then names that nothing names, have the
same answer. Each of these regions is decided once, by the engine itself: nothing here knows what grants, denials or roles mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as chained
from typing import TypeAlias

from privtab.engines.index import Index
from privtab.engines.plan import Caller
from privtab.engines.rows import RowEngine
from privtab.errors import UnsupportedError
from privtab.filters.expression import NOTHING, Expression, OneOf, all_of, any_of
from privtab.names import encode_name, path_of, unencoded
from privtab.paths import PathShape
from privtab.request import Entity, Request

Trie: TypeAlias = dict[str, "Trie"]
"""Encoded names, each with those that follow it in the path of an entity that is named."""


@dataclass(frozen=True, slots=True)
class Split:
    """The paths with one beginning, by their next name: those that are named, and all others."""

    named: Mapping[str, Region]
    other: Region


Region: TypeAlias = Split | int
"""Paths; a number is the position of the entity that stands for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """The paths of a type, divided by what the state says of one caller."""

    levels: tuple[str, ...]
    """The type of each name."""
    whole: Region
    examples: tuple[Entity, ...]
    """One entity for each region."""

    def expression(self, allowed: Sequence[bool]) -> Expression:
        """Where a request is allowed, from the answers for the examples."""
        return self._expression(self.whole, 0, allowed)

    def _expression(self, region: Region, depth: int, allowed: Sequence[bool]) -> Expression:
        if not isinstance(region, Split):
            if not allowed[region]:
                return NOTHING
            return all_of(OneOf(level, (), other=True) for level in self.levels[depth:])
        level = self.levels[depth]
        by_rest: dict[Expression, list[str]] = {}
        for name, inner in region.named.items():
            by_rest.setdefault(self._expression(inner, depth + 1, allowed), []).append(unencoded(name))
        rest = self._expression(region.other, depth + 1, allowed)
        by_rest.pop(rest, None)
        excluded = tuple(sorted(name for names in by_rest.values() for name in names))
        listed = [(OneOf(level, tuple(sorted(names))), inner) for inner, names in by_rest.items()]
        return any_of(all_of(pair) for pair in (*listed, (OneOf(level, excluded, other=True), rest)))


def levels(shape: PathShape) -> tuple[str, ...]:
    """The type of each name in the ids of entities."""
    found: list[str] = []
    for type_, depth in shape.written.chain:
        if depth > len(found):
            found.append(type_)
    return tuple(found)


def regions(engine: RowEngine, request: Request) -> Regions:
    """The regions of the type of a request's resource. Raises UnsupportedError if its paths have no fixed number of names."""
    type_ = request.resource.type
    shape = engine.reader.shapes[type_]
    if shape.written.nested is not None:
        raise UnsupportedError(f"`{type_}` has paths of several lengths, which a filter cannot map to columns yet")
    caller = engine.caller(request)
    types = {name for name, _ in shape.written.chain}
    # Conditions may ask about what each of these has one of: that has the same path.
    chains = engine.reader.chains
    types |= {
        name for name in chains if any(type_ in types and depth == chains[name][-1][1] for type_, depth in chains[name])
    }
    caller = engine.caller(request)
    types = {name for name, _ in shape.written.chain}
    # Conditions may ask about what each of these has one of; it has the same path.
    types |= {name for name, chain in engine.reader.chains.items() if engine.single(name) and chain[-2][0] in types}
    trie: Trie = {}
    # A request may give attributes of its objects, and these may lie on the path.
    for key in chained(_named(engine.index, caller), map(str, request.with_.values())):
        if key.partition(":")[0] in types:
            _insert(trie, path_of(key).split("/"))
    if any(engine.reader.principal[type_] is not None for type_ in types):
        for word in _words(engine.index, caller):
            _insert(trie, word.split("/")[: shape.depth])
    if shape.flat is not None:
        _place(trie, engine.index.places, shape.chain[shape.flat][0])
    return _Division(engine, request, caller, levels(shape), trie).regions()


def _named(index: Index, caller: Caller) -> Iterator[str]:
    """The keys of the entities about which the state says something that can concern a caller."""
    principals = {*caller.principals, *caller.active}
    for type_, table in index.tables.items():
        yield from (f"{type_}:{path}" for path, holders in table.items() if not principals.isdisjoint(holders))
    for entries in (*index.below.values(), index.owned_below):
        yield from (key for key, holders in entries.items() if not principals.isdisjoint(holders))
    for type_, members in index.members.items():
        yield from (f"{type_}:{path}" for path, users in members.items() if caller.user in users)
    yield from caller.scopes
    yield from index.entity_attributes


def _words(index: Index, caller: Caller) -> set[str]:
    """The names of a caller, their groups and their roles."""
    roles = [index.within[principal][0] for principal in caller.principals if principal in index.within]
    return {word.partition(":")[2] for word in (*caller.principals, *roles)} | {caller.user}


def _place(trie: Trie, places: Iterable[str], type_: str) -> None:
    """Name every entity of a type with flat ids: only the state tells where it lies."""
    for key in places:
        if key.startswith(f"{type_}:"):
            _insert(trie, [path_of(key)])


def _insert(trie: Trie, names: Iterable[str]) -> None:
    for name in names:
        if name:
            trie = trie.setdefault(name, {})


class _Division:
    """Divides the paths of a type."""

    def __init__(
        self, engine: RowEngine, request: Request, caller: Caller, levels: tuple[str, ...], trie: Trie
    ) -> None:
        self._type = request.resource.type
        self._levels = levels
        self._trie = trie
        self._examples: list[Entity] = []
        # Conditions compare names of principals wherever these lie.
        words = _words(engine.index, caller)
        names = tuple(sorted({written for word in words for written in (encode_name(word), word) if _is_name(written)}))
        self._compared = [names if engine.reader.principal[level] is not None else () for level in levels]
        used = {name for names_ in _names(trie) for name in names_} | set(names)
        self._unnamed = next(name for number in range(len(used) + 1) if (name := f"unnamed{number}") not in used)

    def regions(self) -> Regions:
        """The whole, divided."""
        whole = self._region((), self._trie)
        return Regions(levels=self._levels, whole=whole, examples=tuple(self._examples))

    def _region(self, names: tuple[str, ...], named: Trie) -> Region:
        depth = len(names)
        if depth == len(self._levels) or not (named or any(self._compared[depth:])):
            missing = len(self._levels) - depth
            self._examples.append(Entity(self._type, "/".join((*names, *[self._unnamed] * missing))))
            return len(self._examples) - 1
        nexts: Trie = {**{name: {} for name in self._compared[depth]}, **named}
        return Split(
            {name: self._region((*names, name), inner) for name, inner in nexts.items()},
            self._region((*names, self._unnamed), {}),
        )


def _names(trie: Trie) -> Iterator[Iterable[str]]:
    yield trie
    for inner in trie.values():
        yield from _names(inner)


def _is_name(word: str) -> bool:
    """Whether a word can stand in a path as it is."""
    return bool(word) and "/" not in word and ("%" not in word or encode_name(unencoded(word)) == word)
