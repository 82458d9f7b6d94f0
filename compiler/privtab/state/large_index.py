"""The index of a large state from its columns: as JSON, the same bytes that `index` gives for the same rows. Needs numpy and pyarrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Lists, text_bytes
from privtab.base.moments import ALWAYS, Window
from privtab.ir.nodes import Program
from privtab.state.chains import GROUP_PREFIX
from privtab.state.coded import CodedColumn, once
from privtab.state.links import with_derived_rows
from privtab.state.names import StateNames, UsedParts
from privtab.state.nodes import State
from privtab.state.principal_rows import SEPARATOR, HeldRoles, scoped_entries, scopes_of_roles

MAX_BLOCK_ROWS = 1 << 18
"""Rows that are written at once, which limits memory."""
_SPECIAL = np.array([byte < 0x20 or byte >= 0x7F or byte in b'"\\' for byte in range(256)])
_EMPTY = arrow.text_array([""]).cast(pa.large_string())


@dataclass(frozen=True, slots=True)
class Level:
    """Keys or values of a part by number, the text around each, and the text between two that differ first at this level."""

    texts: pa.Array
    before: str
    after: str
    between: str

    def pieces(self, *, ascii_only: bool) -> pa.Array:
        """The text of each number; at the end an empty one."""
        before, after = (arrow.text_array([text])[0].cast(pa.large_string()) for text in (self.before, self.after))
        joined = pc.binary_join_element_wise(before, quoted(self.texts, ascii_only=ascii_only), after, _EMPTY[0])
        return pa.concat_arrays([joined, _EMPTY])


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a document. `blocks` gives the rows as numbers by level, sorted and distinct; each block begins with another first key.

    `leaves`: for each row of the only block the number of its value, and the values from 1 on; 0 is `true`.
    """

    blocks: Callable[[], Iterable[Sequence[Codes]]]
    levels: tuple[Level, ...]
    end: str
    leaves: tuple[Codes, Sequence[Sequence[str]]] | None = None

    def columns(self) -> list[Codes]:
        """The rows as one column of numbers for each level."""
        blocks = list(self.blocks())
        no_rows = [np.zeros(0, np.int64)] * len(self.levels)
        return [np.concatenate(blocks_of_level) for blocks_of_level in zip(*blocks, strict=True)] if blocks else no_rows

    def json(self, *, ascii_only: bool) -> Iterator[bytes]:
        """The part as JSON, in pieces; in ASCII, or else in UTF-8."""
        pieces = [level.pieces(ascii_only=ascii_only) for level in self.levels]
        between = arrow.text_array([level.between for level in self.levels]).cast(pa.large_string())
        leaves = None
        if self.leaves is not None:
            leaf_texts = [json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) for value in self.leaves[1]]
            leaves = arrow.text_array(["true", *leaf_texts]).cast(pa.large_string())
        first = True
        for codes in self.blocks():
            differs = _first_difference(codes)
            for begin in range(0, len(differs), MAX_BLOCK_ROWS):
                chunk = slice(begin, begin + MAX_BLOCK_ROWS)
                chunk_differs = differs[chunk]
                columns = [between.take(arrow.integer_array(chunk_differs))]
                for level, (texts, level_codes) in enumerate(zip(pieces, codes, strict=True)):
                    columns.append(
                        texts.take(
                            arrow.integer_array(np.where(chunk_differs <= level, level_codes[chunk], len(texts) - 1))
                        )
                    )
                if self.leaves is not None and leaves is not None:
                    columns.append(leaves.take(arrow.integer_array(self.leaves[0][chunk])))
                text = text_bytes(pc.binary_join_element_wise(*columns, _EMPTY[0]))[1].tobytes()
                yield b"{" + text[len(self.levels[0].between.encode()) :] if first else text
                first = False
        yield b"{}" if first else self.end.encode() + b"}"


def quoted(texts: pa.Array, *, ascii_only: bool) -> pa.Array:
    r"""Texts as in JSON, without the quotation marks.

    >>> quoted(arrow.text_array(['a"b', "c"]), ascii_only=False).to_pylist()
    ['a\\"b', 'c']
    """
    texts = texts.cast(pa.large_string())
    if _are_plain(texts):
        return texts
    special = pc.match_substring_regex(texts, r'[^ -~]|["\\]' if ascii_only else r'[\x00-\x1f"\\]')
    written = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(texts, special, arrow.text_array(written).cast(pa.large_string())) if written else texts


def _are_plain(texts: pa.Array) -> bool:
    """Whether no text has a byte that JSON may escape; one pass over all bytes, faster than a regular expression."""
    _, data = text_bytes(texts)
    parts = (data[start : start + MAX_BLOCK_ROWS] for start in range(0, len(data), MAX_BLOCK_ROWS))
    return not any(bool(_SPECIAL[part].any()) for part in parts)


def _first_difference(columns: Sequence[Codes]) -> Codes:
    """For each row, the first column in which it differs from the row before; 0 for the first row."""
    found = np.full(len(columns[0]), len(columns) - 1, np.int64)
    for level in reversed(range(len(columns) - 1)):
        found[1:][columns[level][1:] != columns[level][:-1]] = level
    found[:1] = 0
    return found


def coded_parts(program: Program, state: State) -> dict[str, Any]:
    """The parts of the index in columns of numbers, and `within`.

    For example:

        coded_parts(program, state)["allow"].columns()
    """
    return held_parts(program, state) | people_parts(program, state)[0]


def held_parts(program: Program, state: State) -> dict[str, Part]:
    """The parts that are looked up by entity, which shards have."""
    state = with_derived_rows(program, state.plain("an index by columns"))
    allow, deny = _grants(program, state)
    owners, members = _pairs(state, "owners", "entity", "owner"), _pairs(state, "members", "of", "user")
    return {"allow": allow, "deny": deny, "owners": owners, "members": members}


def people_parts(program: Program, state: State) -> tuple[dict[str, Any], int]:
    """The parts that are looked up by user or group, and how many users have principals."""
    state = with_derived_rows(program, state.plain("an index by columns"))
    used = UsedParts.of(program)
    people = _People(program, state, used)
    groups_alone = people.groups if used.request_groups else people.numbers(used.everyone)
    admins, admin_names = _sorted(_column(state, "service_admins", "user"))
    parts = {
        "service_admins": Part(lambda: [(once(admins),)], (Level(admin_names, '"', '":true', ","),), ""),
        "principals": people.principals(people.users, "user:"),
        "scoped": people.scoped(people.users, "user:"),
        "group_principals": people.principals(groups_alone, "group:"),
        "group_scoped": people.scoped(groups_alone, "group:"),
        "within": people.within,
    }
    return parts, people.holding(people.users)


def _column(state: State, table: str, name: str) -> CodedColumn:
    return CodedColumn.of_column(state.column(table, name))


def _sorted(column: CodedColumn) -> tuple[Codes, pa.Array]:
    """A column with its texts sorted by their code points, as the bytes of UTF-8 are."""
    order = pc.sort_indices(column.array)
    rank = np.full(len(order) + 1, -1, np.int64)
    rank[arrow.array_numbers(order)] = np.arange(len(order))
    return rank[column.codes], column.array.take(order)


def _united(arrays: Iterable[pa.Array]) -> tuple[pa.Array, list[Codes]]:
    """Distinct texts of several arrays, sorted, and the numbers of each array's texts in them."""
    listed = list(arrays)
    codes, texts = _sorted(CodedColumn.of(pa.chunked_array(listed, pa.string())))
    return texts, np.split(codes, np.cumsum([len(array) for array in listed])[:-1])


def _distinct(columns: Sequence[Codes], sizes: Sequence[int]) -> list[Codes]:
    """The distinct rows of columns of numbers below their sizes, sorted."""
    if np.prod([float(max(size, 1)) for size in sizes]) < 1 << 62:
        key = columns[0]
        for column, size in zip(columns[1:], sizes[1:], strict=True):
            key = key * size + column
        key = once(key)
        found = []
        for size in reversed(sizes[1:]):
            key, last = np.divmod(key, size)
            found.append(last)
        return [key, *reversed(found)]
    order = np.lexsort(tuple(reversed(columns)))
    ordered = [column[order] for column in columns]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    return [column[is_new] for column in ordered]


def _pairs(state: State, table: str, key: str, name: str) -> Part:
    keys, names = _sorted(_column(state, table, key)), _sorted(_column(state, table, name))
    rows = _distinct((keys[0], names[0]), (len(keys[1]), len(names[1])))
    return Part(lambda: [rows], (Level(keys[1], '"', '":{', "},"), Level(names[1], '"', '":true', ",")), "}")


def _grants(program: Program, state: State) -> list[Part]:
    """What is allowed and what is denied: privilege, entity, grantee."""
    columns = {name: _column(state, "grants", name) for name in ("grantee", "effect", "privilege", "entity")}
    rows, privileges = given_privileges(program, columns["privilege"], columns["entity"], columns["effect"])
    scopes = scopes_of_roles(state)
    extra = scoped_entries(program, _granted_to(state, columns["grantee"], scopes), scopes) if scopes else {}
    merged = []
    for key_position, column in enumerate((privileges, columns["entity"], columns["grantee"]), start=1):
        extra_column = CodedColumn.of_texts(key[key_position] for key in extra)
        texts, (first, second) = _united((column.array, extra_column.array))
        merged.append(
            (first[column.codes if column is privileges else column.codes[rows]], second[extra_column.codes], texts)
        )
    effects = columns["effect"]
    found = []
    for effect in ("allow", "deny"):
        of_effect = (effects.codes == arrow.position(effects.array, effect))[rows]
        added = np.array([key[0] == effect for key in extra], np.bool_)
        levels = _distinct(
            [np.concatenate([column[of_effect], extra_column[added]]) for column, extra_column, _ in merged],
            [len(t) for _, _, t in merged],
        )
        leaves = None
        if added.any():
            row_numbers = {
                row: number for number, row in enumerate(zip(*(level.tolist() for level in levels), strict=True))
            }
            numbers = np.zeros(len(levels[0]), np.int64)
            for number in np.flatnonzero(added).tolist():
                numbers[row_numbers[tuple(int(extra_column[number]) for _, extra_column, _ in merged)]] = number + 1
            leaves = numbers, [sorted(origins) for origins in extra.values()]
        around = (('":{', "}},"), ('":{', "},"), ('":true' if leaves is None else '":', ","))
        styles = tuple(Level(t, '"', after, sep) for (_, _, t), (after, sep) in zip(merged, around, strict=True))
        found.append(Part(partial(iter, [levels]), styles, "}}", leaves))
    return found


def given_privileges(
    program: Program, privileges: CodedColumn, entities: CodedColumn, effects: CodedColumn
) -> tuple[Codes, CodedColumn]:
    """The privileges that the rows allow or deny, as `PrivilegeNames.given`: each one's row, and the privileges.

    For example:

        rows, privileges = given_privileges(program, column("privilege"), column("entity"), column("effect"))
    """
    types = list(program.entities)
    kinds = np.zeros(len(entities.array), np.int64)
    for number, type_ in enumerate(types):
        kinds[arrow.array_truth(pc.starts_with(entities.array, f"{type_}:"))] = number
    denied = effects.codes == arrow.position(effects.array, "deny")
    cells = (privileges.codes * len(types) + kinds[entities.codes]) * 2 + denied
    occurs = np.zeros(len(privileges.array) * len(types) * 2, np.bool_)
    occurs[cells] = True
    distinct, inverse = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[cells]
    names = StateNames(program)
    privileges_of_distinct = [
        names.privileges_of(
            privileges.names[code // 2 // len(types)], types[code // 2 % len(types)], ("allow", "deny")[code % 2]
        )
        for code in distinct.tolist()
    ]
    granted = CodedColumn.of_texts(chain.from_iterable(privileges_of_distinct))
    owners = np.repeat(
        np.arange(len(privileges_of_distinct)), [len(granted_names) for granted_names in privileges_of_distinct]
    )
    rows, codes = Lists(owners, granted.codes, len(privileges_of_distinct)).values_of(inverse)
    return rows, CodedColumn(codes, granted.array)


def _granted_to(
    state: State, grantees: CodedColumn, roles: Iterable[str]
) -> Iterator[tuple[tuple[str | None, ...], Window]]:
    """The grants to some roles, as texts, and when they hold: always."""
    rows = grantees.where(roles)
    texts = state.texts("grants", "grantee", "effect", "privilege", "entity", rows=rows)
    return ((row, ALWAYS) for row in texts)


class _People:
    """What is looked up by the name of a user or a group."""

    def __init__(self, program: Program, state: State, used: UsedParts) -> None:
        held_roles = HeldRoles(program, state)
        direct = arrow.text_array([principal for principal in held_roles.grantees if not principal.startswith("role:")])
        holders, roles, scopes = (_column(state, "assignments", name) for name in ("principal", "role", "scope"))
        members, groups = (_column(state, "memberships", name) for name in ("user", "group"))
        nested = arrow.array_truth(pc.starts_with(members.array, GROUP_PREFIX))
        if not used.state_groups:
            counts = np.append(nested, False)[members.codes]
            members, groups = members.rows(counts), groups.rows(counts)
            nested = np.ones(len(members.array), np.bool_)
        member_names = pc.if_else(arrow.truth_array(nested), members.array, _prefixed("user:", members.array))
        name_sources = (holders.array, direct, member_names, _prefixed(GROUP_PREFIX, groups.array))
        self.names, (holder, direct_holder, member, group) = _united(name_sources)
        """Users and groups, and roles that hold others."""
        self.users: Codes = np.flatnonzero(arrow.array_truth(pc.starts_with(self.names, "user:")))
        of_groups = arrow.array_truth(pc.starts_with(self.names, GROUP_PREFIX))
        holds_something = np.zeros(len(self.names), np.bool_)
        holds_something[np.concatenate([holder, direct_holder, member])] = True
        self.groups: Codes = np.flatnonzero(holds_something & of_groups)
        """Those that hold something themselves, or that others contain."""
        self._members = Lists(member[members.codes], group[groups.codes], len(self.names))

        assignment_numbers, principals = _assigned_principals(held_roles, roles, scopes)
        self.within = held_roles.within
        self._principals, (assigned, name_principals) = _united((principals.array, self.names))
        has_effect = principals.codes[assignment_numbers] >= 0
        own_holders = np.append(direct_holder, np.flatnonzero(of_groups)) if used.group_membership else direct_holder
        self._holds = Lists(
            np.append(holder[holders.codes][has_effect], own_holders),
            np.append(assigned[principals.codes[assignment_numbers][has_effect]], name_principals[own_holders]),
            len(self.names),
        )
        is_declared = np.array([*map(held_roles.is_declared, roles.names)], np.bool_)
        scoped = (scopes.codes >= 0) & is_declared[roles.codes]
        (scope, self._scopes), (role, self._roles) = _sorted(scopes), _sorted(roles)
        pairs, pair_numbers = np.unique(scope[scoped] * len(roles.array) + role[scoped], return_inverse=True)
        self._pairs = np.divmod(pairs, max(len(roles.array), 1))
        self._scoped = Lists(holder[holders.codes][scoped], pair_numbers, len(self.names))

    def numbers(self, groups: Collection[str]) -> Codes:
        """The numbers of those of some groups that hold something themselves, or that others contain."""
        named = pc.is_in(self.names, value_set=arrow.text_array(sorted(groups)))
        return np.intersect1d(np.flatnonzero(arrow.array_truth(named)), self.groups)

    def principals(self, people: Codes, prefix: str) -> Part:
        """The principals of some users or groups."""
        levels = (
            Level(self._bare(people, prefix), '"', '":"', '",'),
            Level(self._principals, "", "", json.dumps(SEPARATOR)[1:-1]),
        )
        return Part(partial(self._values_of, people, self._holds, len(self._principals)), levels, '"')

    def scoped(self, people: Codes, prefix: str) -> Part:
        """The scopes within which some users or groups hold declared roles, and these roles."""
        scope, role = self._pairs
        levels = (
            Level(self._bare(people, prefix), '"', '":{', "]},"),
            Level(self._scopes, '"', '":[', "],"),
            Level(self._roles, '"role:', '"', ","),
        )

        def blocks() -> Iterator[tuple[Codes, Codes, Codes]]:
            for positions, pair in self._values_of(people, self._scoped, len(scope)):
                yield positions, scope[pair], role[pair]

        return Part(blocks, levels, "]}")

    def holding(self, people: Codes) -> int:
        """How many of some users or groups have principals."""
        return int(np.count_nonzero(self._counts_of(people, self._holds)))

    def _bare(self, people: Codes, prefix: str) -> pa.Array:
        return pc.utf8_slice_codeunits(self.names.take(arrow.integer_array(people)), len(prefix))

    def _values_of(self, people: Codes, values: Lists, size: int) -> Iterator[tuple[Codes, Codes]]:
        """The values of some people and of their groups, below `size`: pairs of a position in `people` and a value, in blocks."""
        total = np.cumsum(self._counts_of(people, values))
        cuts = np.flatnonzero(np.diff(total // MAX_BLOCK_ROWS)) + 1
        for block in np.split(np.arange(len(people)), cuts):
            rows, direct_values = values.values_of(people[block])
            members, groups = self._members.values_of(people[block])
            through_groups, group_values = values.values_of(groups)
            found = np.append(rows, members[through_groups]), np.append(direct_values, group_values)
            if len(found[0]):
                positions, distinct_values = _distinct(found, (len(block), size))
                yield positions + block[0], distinct_values

    def _counts_of(self, people: Codes, values: Lists) -> Codes:
        """How many values some people and their groups have, with repetitions."""
        per_group = values.counts(self._members.values)
        by_group = np.append(0, np.cumsum(per_group))[self._members.first]
        counts: Codes = values.counts(people) + by_group[people + 1] - by_group[people]
        return counts


def _assigned_principals(held: HeldRoles, roles: CodedColumn, scopes: CodedColumn) -> tuple[Codes, CodedColumn]:
    """For each assignment a number, and by that number the principal for the role; none if nothing depends on it."""
    size = len(scopes.array) + 1
    distinct, inverse = np.unique(roles.codes * size + scopes.codes + 1, return_inverse=True)
    scope_of = [None, *scopes.names]
    return inverse, CodedColumn.of_texts(
        held.principal(roles.names[code // size], scope_of[code % size]) for code in distinct.tolist()
    )


def _prefixed(prefix: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(arrow.text_array([prefix])[0], texts, arrow.text_array([""])[0])
