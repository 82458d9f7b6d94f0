"""The index of a state as arrays: users, principals and entities by number, and what each principal holds on an entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np
import pyarrow as pa

from privtab.base.arrow import Codes, Lists, Truth
from privtab.engines.index import Index, PrivilegeNumbers
from privtab.engines.lookups import WORD, Bits, HashIndex, TextDictionary, pair

SMALLER = 2
"""Entries for each that matters to a condition, above which those that matter are put into a table of their own."""
HEAVY = 32
"""Principals of a user above which it may be faster to go through those that hold something on an entity."""


class TypeArrays:
    """The entities of one type that the state names, and those that contain entities that it names."""

    def __init__(self, name: str, keys: Codes, names: TextDictionary, *, single: bool, root: bool) -> None:
        """`keys`: for each entity the number of the containing one (0 for a root) and that of its last name, as a pair."""
        self.name = name
        self.single = single
        self.count = len(keys)
        self.root = root
        self.names = names
        self._keys = keys
        self._children = HashIndex(self._keys)

    def paths(self, container_paths: Sequence[str]) -> list[str]:
        """All paths by number, given the paths of the containing type; the inverse of `find`."""
        names = list(self.names)
        containers = (self._keys >> 32).tolist()
        if self.single:
            return [""] * self.count if self.root else [container_paths[container] for container in containers]
        last_names = [names[number] for number in (self._keys & 0xFFFFFFFF).tolist()]
        if self.root:
            return last_names
        return [
            f"{container_paths[container]}/{name}" if container_paths[container] else name
            for container, name in zip(containers, last_names, strict=True)
        ]

    def find(self, containers: Codes, last_names: Codes | None) -> Codes:
        """The numbers of entities, given the numbers of the containing entities and of the last names in `names`; None for a single type."""
        return self._children.find(
            pair(containers, np.zeros(len(containers), np.int64) if last_names is None else last_names)
        )

    def only(self, places: Codes) -> TypeArrays:
        """The same, but `find` knows only some entities: a smaller table is searched faster."""
        found = copy(self)
        found._children = HashIndex(self._keys, places)  # noqa: SLF001  (its own)
        return found


class Entries:
    """The rights of principals on the entities of one type."""

    def __init__(self, principals: Codes, places: Codes, words: Sequence[Bits], count: int) -> None:
        """One entry for each (principal, place), with its bits in words; `count` is the number of places."""
        self.principals = principals
        self.places = places
        self._count = count
        self._table = HashIndex(self.principals << 32 | self.places)
        self.words = list(words)

    def held(self) -> Iterator[tuple[int, int, int]]:
        """(principal, place, bits) of each entry."""
        numbers = [word.tolist() for word in self.words]
        bits = (
            sum(number << position * WORD for position, number in enumerate(words))
            for words in zip(*numbers, strict=True)
        )
        return zip(self.principals.tolist(), self.places.tolist(), bits, strict=True)

    def column(self, bit_pairs: Sequence[tuple[int, int]]) -> Column:
        """The entries with the chosen bits only: (bit of the index, bit of the column)."""
        bits = np.zeros(len(self.places), np.uint64)
        for source, target in bit_pairs:
            word, shift = divmod(source.bit_length() - 1, WORD)
            if word < len(self.words):
                bits |= (self.words[word] >> np.uint64(shift) & np.uint64(1)) << np.uint64(target.bit_length() - 1)
        rows = np.flatnonzero(bits)
        used = np.zeros(self._count + 1, np.bool_)
        used[self.places[rows]] = True
        if SMALLER * len(rows) > len(bits):
            return Column(self, bits, used)
        return Column(Entries(self.principals[rows], self.places[rows], (), self._count), bits[rows], used)

    @cached_property
    def by_place(self) -> Lists:
        """The entries of each place."""
        return Lists(self.places, np.arange(len(self.places)), self._count)

    def find(self, principals: Codes, places: Codes) -> Codes:
        """The entries of (principal, place) pairs; -1 if there is none."""
        return self._table.find(principals << 32 | places)


class Column:
    """The rights of principals to a few privileges on the entities of one type."""

    def __init__(self, entries: Entries, bits: Bits, used: Truth) -> None:
        """`bits` are by entry; `used` is by place and has one more element at the end, for missing places."""
        self._entries = entries
        self._bits = bits
        self.used = used
        """By place: whether any principal holds something on it."""

    def held(self, principals: Codes, places: Codes) -> tuple[Codes, Bits]:
        """The positions of the (principal, place) pairs that hold something, and their bits."""
        entries = self._entries.find(principals, places)
        positions = np.flatnonzero(entries >= 0)
        return positions, self._bits[entries[positions]]

    def holders(self, places: Codes) -> Codes:
        """The number of principals that hold something on each place."""
        return self._entries.by_place.counts(places)

    def all_held(self, places: Codes) -> tuple[Codes, Codes, Bits]:
        """Everything that is held on some places: the position of the place, the principal, the bits."""
        of_places = self._entries.by_place
        positions, found = of_places.spread(places)
        entries = of_places.values[found]
        return positions, self._entries.principals[entries], self._bits[entries]


class UserPrincipals:
    """Users and their principals by number."""

    within: Mapping[str, tuple[str, str]]
    roles_of_roles: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, tuple[str, ...]]
    """For policies that take groups from requests."""
    group_scoped: Mapping[str, Mapping[str, tuple[str, ...]]]
    service_admins: frozenset[str]
    stranger: int
    """The number of a user whom no row names, who has what every user has; -1 if that is nothing."""

    def __init__(self, users: TextDictionary, principals: TextDictionary, lists: Lists) -> None:
        """`lists`: the principals of each user."""
        self.users = users
        self.principals = principals
        self._lists = lists
        self._labels: dict[str, tuple[TextDictionary, Codes]] = {}

    def find(self, names: pa.Array) -> Codes:
        """The numbers of users by name; -1 for unknown users."""
        codes = self.users.find(names)
        return codes if self.stranger < 0 else np.where(codes < 0, self.stranger, codes)

    def listed(self) -> dict[str, tuple[str, ...]]:
        """The principals of each user that has any, as in the index."""
        names = list(self.principals)
        flat = [names[number] for number in self._lists.values.tolist()]
        first = self._lists.first[:-1].tolist()
        spans = zip(self.users, first, first[1:], strict=False)
        return {user: tuple(flat[begin:end]) for user, begin, end in spans if end > begin}

    def counts(self, users: Codes) -> Codes:
        """The number of principals of each user; `users` must not be negative."""
        return self._lists.counts(users)

    @cached_property
    def _heavy(self) -> HashIndex:
        """(user, principal) of the users with many principals."""
        users = np.flatnonzero(np.diff(self._lists.first) > HEAVY)
        positions, principals = self.spread(users)
        return HashIndex(users[positions] << 32 | principals)

    def have(self, users: Codes, principals: Codes) -> Truth:
        """Return whether users with many principals have the given ones."""
        found: Truth = self._heavy.find(users << 32 | principals) >= 0
        return found

    def spread(self, users: Codes) -> tuple[Codes, Codes]:
        """All principals of some users: the position of the user in `users`, and the principal."""
        return self._lists.values_of(users)

    def unite(self, users: Codes, bits: Bits) -> Bits:
        """The union of `bits`, which are by principal, over all principals of each user."""
        distinct, inverse = np.unique(users, return_inverse=True)
        united = np.zeros(len(distinct), np.uint64)
        positions, principals = self.spread(distinct)
        np.bitwise_or.at(united, positions, bits[principals])
        return united[inverse]

    def label(self, kind: str) -> tuple[TextDictionary, Codes]:
        """The names of the principals of a kind, and the number of each principal's name; -1 if it is of another kind."""
        if kind not in self._labels:
            names = [self._name(kind, principal) for principal in self.principals]
            known = TextDictionary(name for name in names if name is not None)
            codes = (-1 if name is None else known[name] for name in names)
            self._labels[kind] = known, np.fromiter(codes, np.int64, len(names))
        return self._labels[kind]

    def _name(self, kind: str, principal: str) -> str | None:
        name = self.within[principal][0] if principal in self.within else principal
        return name[len(kind) + 1 :] if name.startswith(f"{kind}:") else None


class Scopes:
    """The declared roles that users hold within the entities of one type."""

    def __init__(self, roles_by_key: Mapping[tuple[int, int], Sequence[str]]) -> None:
        """By (user, place)."""
        self.keys = np.array([user << 32 | place for user, place in roles_by_key], np.int64)
        self._table = HashIndex(self.keys)
        self.roles = list(roles_by_key.values())

    def find(self, users: Codes, places: Codes) -> Codes:
        """Positions in `roles`; -1 if there is none."""
        return self._table.find(pair(users, places))


class Arrays:
    """An index as arrays, without the origins of its rows. It pickles to a few flat buffers (`privtab_spark/packed_values.py`)."""

    def __init__(self, numbers: PrivilegeNumbers, people: UserPrincipals, revision: str) -> None:
        """Arrays without any type; `arrays_of_tables` adds these."""
        self.revision = revision
        self.numbers = numbers
        self.people = people
        self.kinds: dict[str, TypeArrays] = {}
        """Containing types come first."""
        self.above: dict[str, str | None] = {}
        """For each type, the one that contains it."""
        self.entries: dict[str, Entries] = {}
        self.member_keys: dict[str, Codes] = {}
        self.members: dict[str, HashIndex] = {}
        """By type: (user, place)."""
        self.scopes: dict[str, Scopes] = {}

    def __len__(self) -> int:
        """The number of entries of all types."""
        return sum(len(entries.places) for entries in self.entries.values())

    def index(self) -> Index:
        """Rebuild the index for evaluation row by row; it has no origins, so it cannot explain decisions."""
        found = self.plan_only()
        people = self.people
        names = list(people.principals)
        users = list(people.users)
        found.users, found.groups = people.listed(), people.groups
        found.within, found.group_scoped = people.within, people.group_scoped
        found.roles_of_roles = people.roles_of_roles
        scoped: dict[str, dict[str, tuple[str, ...]]] = {}
        paths: dict[str, list[str]] = {}
        for type_, kind in self.kinds.items():
            above = self.above[type_]
            type_paths = paths[type_] = kind.paths(paths[above] if above is not None else [])
            table = found.table(type_)
            for principal, place, bits in self.entries[type_].held():
                table.setdefault(type_paths[place], {})[names[principal]] = bits
            members: dict[str, set[str]] = {}
            for key in self.member_keys[type_].tolist():
                members.setdefault(type_paths[key & 0xFFFFFFFF], set()).add(users[key >> 32])
            found.members[type_] = {path: frozenset(user_names) for path, user_names in members.items()}
            for key, roles in zip(self.scopes[type_].keys.tolist(), self.scopes[type_].roles, strict=True):
                if key >> 32 == people.stranger:
                    continue  # what every user has is in `group_scoped`, too
                scoped.setdefault(users[key >> 32], {})[f"{type_}:{type_paths[key & 0xFFFFFFFF]}"] = tuple(roles)
        found.scoped = scoped
        return found

    def plan_only(self) -> Index:
        """An index that serves only to make plans: it has the numbers of privileges, but no grants and no members."""
        found = Index.__new__(Index)
        found.revision = self.revision
        found.numbers = self.numbers
        found.tables, found.members, found.origins = {}, {}, {}
        found.service_admins = self.people.service_admins
        found.places, found.containers = {}, {}
        return found


def is_single(chain: Sequence[tuple[str, int]]) -> bool:
    """Return whether an entity of the type has no name of its own."""
    return chain[-1][1] == 0 or (len(chain) > 1 and chain[-1][1] == chain[-2][1])
