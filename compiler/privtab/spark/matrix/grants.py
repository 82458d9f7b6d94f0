"""Arrays of what principals hold on the entities of one type, with each way to hold something encoded as a number.

The smaller the number, the better the way. It is composed of the distance of the entity from the resource, the rank of the
principal's name, and whether the way is a row of the state (0) or a default grant of a declared role (1). The minimum of several
ways is the one to report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from privtab.arrow import Codes, Lists, Truth
from privtab.engines.index import OWNER, Index
from privtab.engines.lookups import WORD, words
from privtab.spark.matrix.principals import NONE, SubjectArrays

DEEPEST = 1 << 20
RANKS = (1 << 39) - 1


def way(level: int, ranks: Codes | int, *, declared: bool = False) -> Codes:
    """Encode ways through principals at a level of a chain, counted from the root."""
    distance = (DEEPEST - level) << 40
    encoded: Codes = np.asarray(distance | np.asarray(ranks, np.int64) << 1 | int(declared), np.int64)
    return encoded


def level_of(ways: Codes) -> Codes:
    """The level of each way."""
    return DEEPEST - (ways >> 40)


def rank_of(ways: Codes) -> Codes:
    """The rank of the principal of each way."""
    return ways >> 1 & RANKS


class TypeEntries:
    """The entries (place, principal) of one type, the members of its entities, and the roles assigned within them."""

    def __init__(
        self,
        type_: str,
        chains: Mapping[str, Sequence[tuple[str, int]]],
        index: Index,
        subjects: SubjectArrays,
        scoped: Iterable[tuple[str, int, tuple[str, ...]]],
    ) -> None:
        """`scoped`: (path, subject, the declared roles that the subject holds within it)."""
        self.level = len(chains[type_]) - 1
        self._subjects = subjects
        self._numbers = index.numbers
        self.code: dict[str, int] = {}
        """Path → place."""
        self._enter(type_, index)
        number = subjects.number
        self.member_keys: Codes = np.array(
            sorted(
                self._place(path) << 32 | number[user]
                for path, users in index.members.get(type_, {}).items()
                for user in users
                if user in number
            ),
            np.int64,
        )
        by_key = sorted((self._place(path) << 32 | subject, roles) for path, subject, roles in scoped)
        self.scope_keys: Codes = np.array([key for key, _ in by_key], np.int64)
        self.scope_roles = [roles for _, roles in by_key]
        self._within = self._origins(type_, chains, index)
        self.by_place = Lists(self.place, np.arange(len(self.place)), len(self.code))
        self.members = _by_place(self.member_keys, len(self.code))
        self.scopes = _by_place(self.scope_keys, len(self.code))
        self._columns: dict[tuple[str, str], Codes] = {}
        self._weights: dict[tuple[str, str], Codes] = {}

    def _place(self, path: str) -> int:
        return self.code.setdefault(path, len(self.code))

    def _enter(self, type_: str, index: Index) -> None:
        places, principals, bits = [], [], []
        codes = self._subjects.codes
        for path, holders in index.tables.get(type_, {}).items():
            for principal, mask in holders.items():
                code = codes.get(principal)
                if code is not None:  # otherwise no subject of the matrix has this principal
                    places.append(self._place(path))
                    principals.append(code)
                    bits.append(mask)
        place, principal_codes = np.array(places, np.int64), np.array(principals, np.int64)
        order = np.argsort(place << 32 | principal_codes)
        self.place, self.principal = place[order], principal_codes[order]
        self.keys: Codes = self.place << 32 | self.principal
        self._words = [word[order] for word in words(bits)]

    def _origins(
        self, type_: str, chains: Mapping[str, Sequence[tuple[str, int]]], index: Index
    ) -> dict[str, list[tuple[int, int]]]:
        """Privilege → (entry, level of the nearest row) for roles within scopes, whose grants may lie above their entry."""
        found: dict[str, list[tuple[int, int]]] = {}
        for (effect, privilege, key, principal), rows in index.origins.items():
            key_type, _, path = key.partition(":")
            code = self._subjects.codes.get(principal)
            if key_type == type_ and effect == "allow" and code is not None:
                entry = int(np.searchsorted(self.keys, self.code[path] << 32 | code))
                levels = (len(chains[row.partition(":")[0]]) - 1 for row in rows)
                found.setdefault(privilege, []).append((entry, max(levels)))
        return found

    def owner(self) -> Codes:
        """By entry, the way to ownership; NONE: not an owner."""
        return self._cached("owner", "", lambda: np.where(self._bit(OWNER), self._plain(), NONE))

    def allowed(self, privilege: str) -> Codes:
        """By entry, the way to a privilege; NONE: not granted."""
        return self._cached("allow", privilege, lambda: self._allowed(privilege))

    def denied(self, privilege: str) -> Codes:
        """By entry, the way to a denial; NONE: not denied."""
        bit = self._numbers.denied(privilege)
        return self._cached("deny", privilege, lambda: np.where(self._bit(bit), self._plain(), NONE))

    def weights(self, kind: str, privilege: str) -> Codes:
        """By place, the number of subjects of its entries, with an additional 0 at the end for the place -1."""
        found = self._weights.get((kind, privilege))
        if found is None:
            with_way = np.flatnonzero((self.owner() if kind == "owner" else self.allowed(privilege)) != NONE)
            found = np.zeros(len(self.code) + 1, np.int64)
            np.add.at(found, self.place[with_way], self._subjects.holders.counts(self.principal[with_way]))
            self._weights[kind, privilege] = found
        return found

    def _cached(self, kind: str, privilege: str, make: Callable[[], Codes]) -> Codes:
        found = self._columns.get((kind, privilege))
        if found is None:
            found = self._columns[kind, privilege] = make()
        return found

    def _bit(self, number: int) -> Truth:
        word, shift = divmod(number.bit_length() - 1, WORD)
        if word >= len(self._words):
            return np.zeros(len(self.place), np.bool_)
        bits: Truth = (self._words[word] >> shift & 1) != 0
        return bits

    def _plain(self) -> Codes:
        return way(self.level, self._subjects.rank[self.principal])

    def _allowed(self, privilege: str) -> Codes:
        ways = np.where(self._bit(self._numbers.allowed(privilege)), self._plain(), NONE)
        for entry, level in self._within.get(privilege, ()):
            ways[entry] = way(level, int(self._subjects.rank[self.principal[entry]]))
        return ways


def _by_place(keys: Codes, places: int) -> Lists:
    return Lists(keys >> 32, keys & 0xFFFFFFFF, places)
