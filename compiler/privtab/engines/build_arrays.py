"""Make the arrays of a state from the columns of its index, without an object for each row.

The tables are those of an index (`docs/reference/state.md`), each as columns of numbers and the texts that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Lists
from privtab.engines.arrays import Arrays, Entries, Scopes, TypeArrays, UserPrincipals, is_single
from privtab.engines.columns import Level, level_of, widths
from privtab.engines.held_texts import TextTable, flat_holders
from privtab.engines.index import OWNER_BIT, Index, Principals, PrivilegeNumbers
from privtab.engines.lookups import WORD, HashIndex, TextDictionary, words


class EncodedTable(NamedTuple):
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
    """The rights of principals on entities: bits by number."""

    principals: Codes
    entities: Codes
    bits: Codes


def arrays_of_index(index: Index, chains: Mapping[str, Sequence[tuple[str, int]]]) -> Arrays:
    """The arrays of a state, from its index; they share the numbers of its privileges."""
    arrays = arrays_of_tables(_tables(index), index.within, chains, index.numbers, index.revision, index.everyone)
    arrays.people.roles_of_roles = index.roles_of_roles
    return arrays


def _tables(index: Index) -> dict[str, EncodedTable]:
    """The tables of an index, as for `arrays_of_tables`."""
    keys = [f"{type_}:{path}" for type_, table in index.tables.items() for path in table]
    held_in_tables = [
        table.flat() if isinstance(table, TextTable) else flat_holders(table.values())
        for table in index.tables.values()
    ]
    holders, bits, counts = (
        [*chain.from_iterable(column)] for column in zip(([], [], []), *held_in_tables, strict=True)
    )
    entity = np.repeat(np.arange(len(keys)), np.array(counts, np.int64))
    principals = TextDictionary(holders)
    principal = principals.codes(holders, len(entity))
    held = words(bits)
    entity_texts, principal_texts = arrow.text_array(keys), arrow.text_array(list(principals))

    def having(bit: int) -> Codes:
        word, shift = divmod(bit.bit_length() - 1, WORD)
        return np.flatnonzero(held[word] >> shift & 1) if word < len(held) else np.zeros(0, np.int64)

    found = {}
    privileges = list(index.numbers)
    for effect, bit in (("allow", index.numbers.allowed), ("deny", index.numbers.denied)):
        rows = [having(bit(privilege)) for privilege in privileges]
        privilege = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
        selected = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        texts = (arrow.text_array(privileges), entity_texts, principal_texts)
        found[effect] = EncodedTable((privilege, entity[selected], principal[selected]), texts)
    owned = having(OWNER_BIT)
    found["owners"] = EncodedTable((entity[owned], principal[owned]), (entity_texts, principal_texts))
    members = ((f"{type_}:{path}", users) for type_, table in index.members.items() for path, users in table.items())
    found["members"] = _encoded([(key, user) for key, users in members for user in users], 2)
    found["service_admins"] = _encoded([(user,) for user in index.service_admins], 1)
    for name, listed in (("principals", index.users), ("group_principals", index.groups)):
        if isinstance(listed, Principals):
            flat, lengths = listed.flat()
        else:
            flat, lengths = list(chain.from_iterable(listed.values())), list(map(len, listed.values()))
        texts_of_principals = TextDictionary(flat)
        owners = np.repeat(np.arange(len(lengths)), np.array(lengths, np.int64))
        codes = texts_of_principals.codes(flat, len(flat))
        found[name] = EncodedTable(
            (owners, codes), (arrow.text_array(list(listed)), arrow.text_array(list(texts_of_principals)))
        )
    for name, scoped in (("scoped", index.scoped), ("group_scoped", index.group_scoped)):
        rows_of_scopes = ((holder, scope, roles) for holder, own in scoped.items() for scope, roles in own.items())
        found[name] = _encoded(
            [(holder, scope, role[5:]) for holder, scope, roles in rows_of_scopes for role in roles], 3
        )
    return found


def _encoded(rows: Sequence[tuple[str, ...]], width: int) -> EncodedTable:
    """A table of few texts."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    texts = [TextDictionary(column) for column in columns]
    codes = [own.codes(column, len(column)) for own, column in zip(texts, columns, strict=True)]
    return EncodedTable(codes, [arrow.text_array(list(own)) for own in texts])


def arrays_of_tables(
    tables: Mapping[str, tuple[Sequence[Codes], Sequence[pa.Array]]],
    within: Mapping[str, tuple[str, str]],
    chains: Mapping[str, Sequence[tuple[str, int]]],
    numbers: PrivilegeNumbers | None = None,
    revision: str = "",
    everyone: tuple[str, ...] = (),
) -> Arrays:
    """The arrays of a state.

    `tables`: `allow` and `deny` (privilege, entity, principal), `owners` (entity, principal), `members` (entity, user), `principals`
    and `group_principals` (name, principal), `scoped` and `group_scoped` (name, scope, role), `service_admins` (user).
    `within`: the role and the scope that a principal stands for. `chains`: as those of a condition reader. `everyone`: the group of every
    user, if there is one.
    """
    encoded = {name: EncodedTable(*table) for name, table in tables.items()}
    users, (_, scoped_numbers, _, member_numbers) = _united(
        [
            encoded["principals"].texts[0],
            encoded["scoped"].texts[0],
            encoded["service_admins"].texts[0],
            encoded["members"].texts[1],
        ]
    )
    people = _people(encoded, within, users, everyone)
    arrays = Arrays(numbers or PrivilegeNumbers(), people, revision)
    effects = [encoded["allow"], encoded["deny"]]
    grantees = [effects[0].texts[2], effects[1].texts[2], encoded["owners"].texts[1]]
    grantee_codes = [arrays.people.principals.find(texts) for texts in grantees]
    shared_scopes = {scope: roles for group in everyone for scope, roles in people.group_scoped.get(group, {}).items()}
    entities, entity_codes = _united(
        [
            effects[0].texts[1],
            effects[1].texts[1],
            encoded["owners"].texts[0],
            encoded["members"].texts[0],
            encoded["scoped"].texts[1],
            arrow.text_array(list(shared_scopes)),
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
    entity, owner = encoded["owners"].columns
    granted.append(
        _GrantedBits(grantee_codes[2][owner], entity_codes[2][entity], np.full(len(owner), OWNER_BIT.bit_length() - 1))
    )
    all_held = _GrantedBits(*(np.concatenate(columns) for columns in zip(*granted, strict=True)))
    places = _Places(entities, chains)
    entity_column, user_column = encoded["members"].columns
    member_entities, member_users = entity_codes[3][entity_column], member_numbers[user_column]
    scoped = _scoped(encoded["scoped"])
    for type_ in sorted(chains, key=lambda name: len(chains[name])):
        types = chains[type_]
        arrays.above[type_] = types[-2][0] if len(types) > 1 else None
        arrays.kinds[type_] = places.kind(type_)
        place_of_entity = places.numbers[type_]
        arrays.entries[type_] = _entries(all_held, place_of_entity, arrays.kinds[type_].count)
        member_places = place_of_entity[member_entities]
        keys = member_users[member_places >= 0] << 32 | member_places[member_places >= 0]
        arrays.member_keys[type_] = keys
        arrays.members[type_] = HashIndex(keys)
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for (user, place), roles in scoped.items():
            if (scope_place := int(place_of_entity[entity_codes[4][place]])) >= 0:
                found[int(scoped_numbers[user]), scope_place] = roles
        for place, shared in zip(entity_codes[5], shared_scopes.values(), strict=True):
            if (scope_place := int(place_of_entity[place])) >= 0:
                for user in range(len(users) + 1):
                    found[user, scope_place] = (*found.get((user, scope_place), ()), *shared)
        arrays.scopes[type_] = Scopes(found)
    return arrays


def _united(arrays: Sequence[pa.Array]) -> tuple[pa.Array, list[Codes]]:
    """The distinct texts of several arrays, and the number of each array's texts among them."""
    different = {id(array): array for array in arrays}  # allows and denials share theirs
    encoded = pa.concat_arrays([array.cast(pa.string()) for array in different.values()]).dictionary_encode()
    ends = np.cumsum([len(array) for array in different.values()])
    codes = dict(zip(different, np.split(arrow.array_numbers(encoded.indices), ends[:-1]), strict=True))
    return encoded.dictionary, [codes[id(array)] for array in arrays]


def _people(
    tables: Mapping[str, EncodedTable],
    within: Mapping[str, tuple[str, str]],
    users: pa.Array,
    everyone: tuple[str, ...],
) -> UserPrincipals:
    groups = _listed(tables["group_principals"])
    of_everyone = [p for group in everyone for p in groups.get(group, (f"group:{group}",))]
    table = tables["principals"]
    user_codes, principal_codes = table.columns
    used, codes = np.unique(principal_codes, return_inverse=True)
    used_principals = table.texts[1].take(arrow.integer_array(used))
    of_groups = [p for own in groups.values() for p in own]
    principals, (numbers, _, shared) = _united(
        [used_principals, arrow.text_array(of_groups), arrow.text_array(of_everyone)]
    )
    known_users = TextDictionary.of(users)
    pairs = known_users.find(table.texts[0])[user_codes] << 32 | numbers[codes]
    if everyone:
        everybody = np.arange(len(users) + 1)  # the last one is whom no row names
        pairs = np.unique(np.append(pairs, (everybody[:, np.newaxis] << 32 | shared).ravel()))
    lists = Lists(pairs >> 32, pairs & 0xFFFFFFFF, len(users) + len(everyone))
    people = UserPrincipals(known_users, TextDictionary.of(principals), lists)
    people.stranger = len(users) if everyone else -1
    people.within, people.roles_of_roles, people.groups = dict(within), {}, groups
    people.service_admins = frozenset(user for (user,) in tables["service_admins"].rows())
    group_scoped: dict[str, dict[str, tuple[str, ...]]] = {}
    names, scopes, _ = (texts.to_pylist() for texts in tables["group_scoped"].texts)
    for (name, scope), roles in _scoped(tables["group_scoped"]).items():
        group_scoped.setdefault(names[name], {})[scopes[scope]] = roles
    people.group_scoped = group_scoped
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


def _entries(granted: _GrantedBits, place_of_entity: Codes, count: int) -> Entries:
    """The rights held on the entities of one type; `place_of_entity`: the place of each entity, -1 for another type's."""
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
            types = chains[type_]
            depth = types[-1][1]
            of_type = np.flatnonzero(arrow.array_truth(pc.starts_with(entities, f"{type_}:")))
            paths = pc.utf8_slice_codeunits(entities.take(arrow.integer_array(of_type)), len(type_) + 1)
            right_depth = widths(paths, depth)[0] == depth
            paths, of_type = paths.filter(arrow.truth_array(right_depth)), of_type[right_depth]
            child_codes: list[Codes] = []
            texts, path_codes = paths, np.arange(len(paths))  # each stands once
            if below[type_]:
                texts, (path_codes, *child_codes) = _united([paths, *(parents for _, parents in below[type_])])
            self.numbers[type_] = np.full(len(entities), -1, np.int64)
            self.numbers[type_][of_type] = path_codes
            above |= {child: codes for (child, _), codes in zip(below[type_], child_codes, strict=True)}
            level = self._levels[type_] = level_of(texts, depth)
            if len(types) > 1:
                below[types[-2][0]].append((type_, texts if is_single(types) else level.parents))
        self._above = above

    def kind(self, type_: str) -> TypeArrays:
        level, types = self._levels[type_], self._chains[type_]
        single, root = is_single(types), len(types) == 1
        count = len(level.texts)
        if root:
            containers = np.zeros(count, np.int64)
        else:
            containers = self._above[type_] if single else self._above[type_][level.parent_codes]
        names = arrow.text_array([""]) if single else level.names
        last_names = np.zeros(count, np.int64) if single else level.name_codes
        return TypeArrays(type_, containers << 32 | last_names, TextDictionary.of(names), single=single, root=root)
