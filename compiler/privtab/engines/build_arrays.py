"""Make the arrays of a state from the columns of its index, without an object for each row.

The tables are those of an index (`docs/reference/state.md`), each as columns of numbers and the texts that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes, Lists
from privtab.engines.arrays import Arrays, Entries, Scopes, TypeArrays, UserPrincipals, is_single
from privtab.engines.columns import Level, level_of, widths
from privtab.engines.index import OWNER, PrivilegeNumbers
from privtab.engines.lookups import WORD, HashIndex, TextDictionary


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A table of texts: columns of numbers, and the texts of each column by number."""

    columns: Sequence[Codes]
    texts: Sequence[pa.Array]

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The rows as texts."""
        text_columns = [texts.to_pylist() for texts in self.texts]
        return zip(
            *(
                [column_texts[number] for number in codes.tolist()]
                for column_texts, codes in zip(text_columns, self.columns, strict=True)
            ),
            strict=True,
        )


class _GrantedBits(NamedTuple):
    """What principals hold on entities: bits by number."""

    principals: Codes
    entities: Codes
    bits: Codes


def build_arrays(
    tables: Mapping[str, EncodedTable],
    within: Mapping[str, tuple[str, str]],
    chains: Mapping[str, Sequence[tuple[str, int]]],
) -> Arrays:
    """The arrays of a state.

    `tables`: `allow` and `deny` (privilege, entity, principal), `owners` (entity, principal), `members` (entity, user), `principals`
    and `group_principals` (name, principal), `scoped` and `group_scoped` (name, scope, role), `service_admins` (user).
    `within`: the role and the scope that a principal stands for. `chains`: as those of a condition reader.
    """
    arrays = Arrays.__new__(Arrays)
    arrays.revision = ""
    arrays.numbers = PrivilegeNumbers()
    users, (_, scoped_numbers, _, member_numbers) = _united(
        [
            tables["principals"].texts[0],
            tables["scoped"].texts[0],
            tables["service_admins"].texts[0],
            tables["members"].texts[1],
        ]
    )
    arrays.people = _people(tables, within, users)
    effects = [tables["allow"], tables["deny"]]
    grantees = [effects[0].texts[2], effects[1].texts[2], tables["owners"].texts[1]]
    grantee_codes = [arrays.people.principals.find(texts) for texts in grantees]
    entities, entity_codes = _united(
        [
            effects[0].texts[1],
            effects[1].texts[1],
            tables["owners"].texts[0],
            tables["members"].texts[0],
            tables["scoped"].texts[1],
        ]
    )
    granted: list[_GrantedBits] = []
    for denied, effect in enumerate(effects):
        used = np.unique(effect.columns[0]).tolist()
        bits = np.zeros(len(effect.texts[0]), np.int64)
        for code in used:
            bits[code] = arrays.numbers.allowed(effect.texts[0][code].as_py()).bit_length() - 1 + denied
        privilege, entity, grantee = effect.columns
        granted.append(_GrantedBits(grantee_codes[denied][grantee], entity_codes[denied][entity], bits[privilege]))
    entity, owner = tables["owners"].columns
    granted.append(
        _GrantedBits(grantee_codes[2][owner], entity_codes[2][entity], np.full(len(owner), OWNER.bit_length() - 1))
    )
    all_held = _GrantedBits(*(np.concatenate(columns) for columns in zip(*granted, strict=True)))
    places = _Places(entities, chains)
    arrays.kinds, arrays.above, arrays.entries = {}, {}, {}
    arrays._members, arrays.members, arrays.scopes = {}, {}, {}  # noqa: SLF001  (its own)
    entity_column, user_column = tables["members"].columns
    member_entities, member_users = entity_codes[3][entity_column], member_numbers[user_column]
    scoped = _scoped(tables["scoped"])
    for type_ in sorted(chains, key=lambda name: len(chains[name])):
        chain = chains[type_]
        arrays.above[type_] = chain[-2][0] if len(chain) > 1 else None
        arrays.kinds[type_] = places.kind(type_)
        place_of_entity = places.numbers[type_]
        arrays.entries[type_] = _entries(all_held, place_of_entity, arrays.kinds[type_].count)
        member_places = place_of_entity[member_entities]
        keys = member_users[member_places >= 0] << 32 | member_places[member_places >= 0]
        arrays._members[type_] = keys  # noqa: SLF001
        arrays.members[type_] = HashIndex(keys)
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for (user, place), roles in scoped.items():
            if (scope_place := int(place_of_entity[entity_codes[4][place]])) >= 0:
                found[int(scoped_numbers[user]), scope_place] = roles
        arrays.scopes[type_] = Scopes(found)
    return arrays


def _united(arrays: Sequence[pa.Array]) -> tuple[pa.Array, list[Codes]]:
    """The distinct texts of several arrays, and the number of each array's texts among them."""
    encoded = pa.concat_arrays([array.cast(pa.string()) for array in arrays]).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, np.split(codes, np.cumsum([len(array) for array in arrays])[:-1])


def _people(
    tables: Mapping[str, EncodedTable], within: Mapping[str, tuple[str, str]], users: pa.Array
) -> UserPrincipals:
    people = UserPrincipals.__new__(UserPrincipals)
    table = tables["principals"]
    people.within = dict(within)
    people.roles_of_roles = {}
    people.groups = _listed(tables["group_principals"])
    people.group_scoped = {}
    for (name, scope), roles in _scoped_texts(tables["group_scoped"]).items():
        people.group_scoped.setdefault(name, {})[scope] = roles
    people.service_admins = frozenset(user for (user,) in tables["service_admins"].rows())
    people.users = TextDictionary.of(users)
    user_codes, principal_codes = table.columns
    used, codes = np.unique(principal_codes, return_inverse=True)
    used_principals = table.texts[1].take(pa.array(used))
    group_principals = pa.array([p for listed in people.groups.values() for p in listed], pa.string())
    principals, (numbers, _) = _united([used_principals, group_principals])
    people.principals = TextDictionary.of(principals)
    people._lists = Lists(people.users.find(table.texts[0])[user_codes], numbers[codes], len(users))  # noqa: SLF001
    people._labels = {}  # noqa: SLF001
    return people


def _listed(table: EncodedTable) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, principal in table.rows():
        found.setdefault(name, []).append(principal)
    return {name: tuple(principals) for name, principals in found.items()}


def _scoped(table: EncodedTable) -> dict[tuple[int, int], tuple[str, ...]]:
    """The roles by name and scope, both by number."""
    roles = table.texts[2].to_pylist()
    found: dict[tuple[int, int], list[str]] = {}
    for name, scope, role in zip(*(codes.tolist() for codes in table.columns), strict=True):
        found.setdefault((name, scope), []).append(f"role:{roles[role]}")
    return {key: tuple(role_names) for key, role_names in found.items()}


def _scoped_texts(table: EncodedTable) -> dict[tuple[str, str], tuple[str, ...]]:
    names, scopes = table.texts[0].to_pylist(), table.texts[1].to_pylist()
    return {(names[name], scopes[scope]): roles for (name, scope), roles in _scoped(table).items()}


def _entries(granted: _GrantedBits, place_of_entity: Codes, count: int) -> Entries:
    """What is held on the entities of one type; `place_of_entity`: the place of each entity, -1 for another type's."""
    places = place_of_entity[granted.entities]
    selected = np.flatnonzero((places >= 0) & (granted.principals >= 0))  # no user has the other principals
    keys = granted.principals[selected] << 32 | places[selected]
    order = np.argsort(keys, kind="stable")
    keys, bits = keys[order], granted.bits[selected][order]
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    words = []
    for word in range(int(bits.max(initial=0)) // WORD + 1):
        word_bits = np.where(bits // WORD == word, np.int64(1) << bits % WORD, 0)
        words.append(
            np.bitwise_or.reduceat(word_bits, begins).astype(np.uint64) if len(begins) else np.zeros(0, np.uint64)
        )
    distinct_keys = keys[begins]
    return Entries(distinct_keys >> 32, distinct_keys & 0xFFFFFFFF, words, count)


class _Places:
    """The entities that a state names and those that contain them, by type and number."""

    def __init__(self, entities: pa.Array, chains: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """`entities`: distinct, each as `type:path`."""
        self._chains = chains
        self._levels: dict[str, Level] = {}
        self.numbers: dict[str, Codes] = {}
        """By type, the number of each entity; -1 for another type's, and for a path that does not fit the policy."""
        below: dict[str, list[tuple[str, pa.Array]]] = {type_: [] for type_ in chains}
        above: dict[str, Codes] = {}
        for type_ in sorted(chains, key=lambda name: -len(chains[name])):
            chain = chains[type_]
            depth = chain[-1][1]
            of_type = pc.starts_with(entities, f"{type_}:").to_numpy(zero_copy_only=False).nonzero()[0]
            paths = pc.utf8_slice_codeunits(entities.take(pa.array(of_type)), len(type_) + 1)
            right_depth = widths(paths, depth)[0] == depth
            paths, of_type = paths.filter(pa.array(right_depth)), of_type[right_depth]
            texts, (path_codes, *child_codes) = _united([paths, *(parents for _, parents in below[type_])])
            self.numbers[type_] = np.full(len(entities), -1, np.int64)
            self.numbers[type_][of_type] = path_codes
            above |= {child: codes for (child, _), codes in zip(below[type_], child_codes, strict=True)}
            level = self._levels[type_] = level_of(texts, depth)
            if len(chain) > 1:
                below[chain[-2][0]].append((type_, texts if is_single(chain) else level.parents))
        self._above = above

    def kind(self, type_: str) -> TypeArrays:
        """The entities of a type."""
        level, chain = self._levels[type_], self._chains[type_]
        single, root = is_single(chain), len(chain) == 1
        count = len(level.texts)
        if root:
            containers = np.zeros(count, np.int64)
        else:
            containers = self._above[type_] if single else self._above[type_][level.parent_codes]
        names = pa.array([""], pa.string()) if single else level.names
        last_names = np.zeros(count, np.int64) if single else level.name_codes
        return TypeArrays(type_, containers << 32 | last_names, TextDictionary.of(names), single=single, root=root)
