"""The index of a state as arrays: users, principals and entities by number, and what each principal holds on an entity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.engines.index import Index

Codes: TypeAlias = npt.NDArray[np.int64]
"""Numbers of users, entities and so on; -1: none such."""
Bits: TypeAlias = npt.NDArray[np.uint64]
Truth: TypeAlias = npt.NDArray[np.bool_]

_EMPTY = -1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio: neighbouring numbers come to lie far apart."""
WORD = 60
"""Bits of an index's number in one word of an array."""


def pair(one: Codes, other: Codes) -> Codes:
    """Two numbers as one; -1 where either is -1."""
    both: Codes = np.where((one < 0) | (other < 0), _EMPTY, one << 32 | other)
    return both


class Numbered:
    """An open-addressing table: numbers to their positions among the keys it was made from."""

    def __init__(self, keys: Codes) -> None:
        """`keys`: not negative, each once."""
        bits = max(4, int(2 * len(keys)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._keys = np.full(1 << bits, _EMPTY, np.int64)
        self._values = np.full(1 << bits, _EMPTY, np.int32)
        left = np.arange(len(keys))
        at = self._home(keys)
        while len(left):
            free = self._keys[at] == _EMPTY
            self._keys[at[free]] = keys[left[free]]
            placed = self._keys[at] == keys[left]
            self._values[at[placed]] = left[placed]
            left, at = left[~placed], at[~placed] + 1 & self._mask

    def _home(self, keys: Codes) -> Codes:
        home: Codes = (keys.astype(np.uint64) * _SPREAD >> self._shift).astype(np.int64)
        return home

    def find(self, keys: Codes) -> Codes:
        """The position of each key; -1 where it is none."""
        at = self._home(keys)
        there = self._keys[at]
        found: Codes = np.where(there == keys, self._values[at], np.int64(_EMPTY))
        left = np.flatnonzero((there != keys) & (there != _EMPTY))
        at = at[left]
        while len(left):
            at = at + 1 & self._mask
            there, wanted = self._keys[at], keys[left]
            hit = there == wanted
            found[left[hit]] = self._values[at[hit]]
            on = ~hit & (there != _EMPTY)
            left, at = left[on], at[on]
        return found


class Names:
    """Texts by number."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._codes = {text: number for number, text in enumerate(dict.fromkeys(texts))}

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, text: str) -> int:
        return self._codes.get(text, -1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    @cached_property
    def _array(self) -> pa.Array:
        return pa.array(list(self._codes), pa.string())

    def find(self, texts: pa.Array) -> Codes:
        """The number of each text; -1 where it has none."""
        if len(texts) * 8 < len(self):
            # Arrow builds its table of all names anew for each call.
            return np.fromiter(map(self.__getitem__, texts.to_pylist()), np.int64, len(texts))
        found: Codes = pc.fill_null(pc.index_in(texts, value_set=self._array), -1).to_numpy(zero_copy_only=False)
        return found.astype(np.int64)


class Kind:
    """The entities of one type: those that the state names, and those that contain others that it names."""

    def __init__(self, name: str, paths: Mapping[str, int], *, single: bool, above: Mapping[str, int] | None) -> None:
        """`paths`: each with its number. `above`: those of the type that contains this one; None for a root."""
        self.name = name
        self.single = single
        self.count = len(paths)
        own = ["" if single else path.rpartition("/")[2] for path in paths]
        self.names = Names(own)
        parents = (0 if above is None else above[_parent(path, single=single)] for path in paths)
        keys = (parent << 32 | self.names[name] for parent, name in zip(parents, own, strict=True))
        self._children = Numbered(np.fromiter(keys, np.int64, self.count))

    def find(self, above: Codes, names: pa.Array | None) -> Codes:
        """Numbers from those of the entities above and the last names; `names` are not looked at for a single type."""
        own = np.zeros(len(above), np.int64) if self.single or names is None else self.names.find(names)
        return self._children.find(pair(above, own))


class Entries:
    """What principals hold on the entities of one type."""

    def __init__(self, principals: Sequence[int], places: Sequence[int], bits: Sequence[int], count: int) -> None:
        """One entry for each (principal, place); `count` is the number of places."""
        self.places = np.array(places, np.int64)
        self._count = count
        self._table = Numbered(np.array(principals, np.int64) << 32 | self.places)
        words = max((number.bit_length() for number in bits), default=0) // WORD + 1
        mask = (1 << WORD) - 1
        self.words = [np.array([number >> word * WORD & mask for number in bits], np.uint64) for word in range(words)]

    def column(self, numbers: Sequence[tuple[int, int]]) -> Column:
        """The entries with chosen bits alone: (bit of the index, bit of the column)."""
        bits = np.zeros(len(self.places) + 1, np.uint64)
        for source, target in numbers:
            word, at = divmod(source.bit_length() - 1, WORD)
            if word < len(self.words):
                bits[:-1] |= (self.words[word] >> np.uint64(at) & np.uint64(1)) << np.uint64(target.bit_length() - 1)
        used = np.zeros(self._count + 1, np.bool_)
        used[self.places[bits[:-1] != 0]] = True
        return Column(self._table, bits, used)


class Column:
    """What principals hold of a few privileges on the entities of one type."""

    def __init__(self, table: Numbered, bits: Bits, used: Truth) -> None:
        """`bits` and `used` have one more at their end, for what is not there."""
        self._table = table
        self._bits = bits
        self.used = used
        """By place: whether anybody holds anything."""

    def held(self, principals: Codes, places: Codes) -> Bits:
        """Bits by (principal, place)."""
        return self._bits[self._table.find(principals << 32 | places)]


class People:
    """Users and their principals by number."""

    def __init__(self, index: Index) -> None:
        named = (
            *index.users,
            *index.scoped,
            *index.service_admins,
            *(u for m in index.members.values() for us in m.values() for u in us),
        )
        self._within = index.within
        self.users = Names(named)
        listed = [index.users.get(user, ()) for user in dict.fromkeys(named)]
        self.principals = Names(principal for principals in listed for principal in principals)
        self._first = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(principals) for principals in listed], out=self._first[1:])
        codes = (self.principals[p] for principals in listed for p in principals)
        self._flat = np.fromiter(codes, np.int64, self._first[-1])
        self._labels: dict[str, tuple[Names, Codes]] = {}

    def spread(self, users: Codes) -> tuple[Codes, Codes, Codes]:
        """All principals of some users: the positions of those that have any, where each begins, and the principals.

        `users`: not negative.
        """
        counts = self._first[users + 1] - self._first[users]
        some = np.flatnonzero(counts)
        counts = counts[some]
        begins = np.cumsum(counts) - counts
        at = np.repeat(self._first[users[some]] - begins, counts) + np.arange(counts.sum())
        return some, begins, self._flat[at]

    def unite(self, users: Codes, bits: Bits) -> Bits:
        """What each user has by all his principals; `bits` are by principal."""
        united = np.zeros(len(users), np.uint64)
        known = np.flatnonzero(users >= 0)
        some, begins, principals = self.spread(users[known])
        if len(some):
            united[known[some]] = np.bitwise_or.reduceat(bits[principals], begins)
        return united

    def label(self, kind: str) -> tuple[Names, Codes]:
        """The names of the principals of a kind, and the number of each principal's name; -1 where it is of another kind."""
        if kind not in self._labels:
            names = [self._name(kind, principal) for principal in self.principals]
            known = Names(name for name in names if name is not None)
            codes = (-1 if name is None else known[name] for name in names)
            self._labels[kind] = known, np.fromiter(codes, np.int64, len(names))
        return self._labels[kind]

    def _name(self, kind: str, principal: str) -> str | None:
        own = self._within[principal][0] if principal in self._within else principal
        return own[len(kind) + 1 :] if own.startswith(f"{kind}:") else None


class Scopes:
    """The declared roles that users hold within the entities of one type."""

    def __init__(self, held: Mapping[tuple[int, int], Sequence[str]]) -> None:
        """By (user, place)."""
        self._table = Numbered(np.array([user << 32 | place for user, place in held], np.int64))
        self.roles = list(held.values())

    def find(self, users: Codes, places: Codes) -> Codes:
        """Positions in `roles`; -1: none."""
        return self._table.find(pair(users, places))


class Arrays:
    """All of an index."""

    def __init__(self, index: Index, chains: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        self.people = People(index)
        self.kinds: dict[str, Kind] = {}
        self.entries: dict[str, Entries] = {}
        self.members: dict[str, Numbered] = {}
        """By type: (user, place)."""
        self.scopes: dict[str, Scopes] = {}
        paths = _paths(index, chains)
        numbers: dict[str, dict[str, int]] = {}
        for type_ in sorted(chains, key=lambda name: len(chains[name])):
            chain = chains[type_]
            above = numbers[chain[-2][0]] if len(chain) > 1 else None
            single = len(chain) > 1 and chain[-1][1] == chain[-2][1]
            numbers[type_] = {path: number for number, path in enumerate(paths[type_])}
            self.kinds[type_] = Kind(type_, numbers[type_], single=single or chain[-1][1] == 0, above=above)
            self.entries[type_] = self._entries(index, type_, numbers[type_])
            users = self.people.users
            members = [
                users[user] << 32 | numbers[type_][path]
                for path, named in index.members.get(type_, {}).items()
                if path in numbers[type_]
                for user in named
            ]
            self.members[type_] = Numbered(np.array(members, np.int64))
        held: dict[str, dict[tuple[int, int], Sequence[str]]] = {type_: {} for type_ in chains}
        for user, scopes in index.scoped.items():
            for key, roles in scopes.items():
                type_, _, path = key.partition(":")
                if path in numbers.get(type_, ()):
                    held[type_][self.people.users[user], numbers[type_][path]] = roles
        self.scopes = {type_: Scopes(of_type) for type_, of_type in held.items()}

    def _entries(self, index: Index, type_: str, numbers: Mapping[str, int]) -> Entries:
        principals, places, bits = [], [], []
        for path, holders in index.tables.get(type_, {}).items():
            place = numbers.get(path)
            if place is None:
                continue
            for principal, held in holders.items():
                code = self.people.principals[principal]
                if code >= 0:  # nobody is a principal that no user has
                    principals.append(code)
                    places.append(place)
                    bits.append(held)
        return Entries(principals, places, bits, len(numbers))


def _paths(index: Index, chains: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, dict[str, None]]:
    """For each type the paths that matter, in a fixed order."""
    found: dict[str, dict[str, None]] = {type_: {} for type_ in chains}
    scopes = (key.partition(":") for scopes in index.scoped.values() for key in scopes)
    named = [
        *((type_, path) for type_, table in index.tables.items() for path in table),
        *((type_, path) for type_, table in index.members.items() for path in table),
        *((type_, path) for type_, _, path in scopes),
    ]
    for type_, path in named:
        # A state may be older than the policy, and name what it has no more.
        if type_ in chains and (path.count("/") + 1 if path else 0) == chains[type_][-1][1]:
            found[type_][path] = None
    for type_ in sorted(chains, key=lambda name: -len(chains[name])):
        chain = chains[type_]
        if len(chain) > 1:
            single = chain[-1][1] == chain[-2][1]
            found[chain[-2][0]].update((_parent(path, single=single), None) for path in found[type_])
    return found


def _parent(path: str, *, single: bool) -> str:
    return path if single else path.rpartition("/")[0]
