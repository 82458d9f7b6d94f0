"""The parts of an index from columns of numbers: as JSON, the same bytes as from rows. Needs numpy and pyarrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Lists, Truth, text_bytes
from privtab.base.records import dataclass
from privtab.base.shard_names import GRANTS
from privtab.ir.nodes import Program
from privtab.state.coded import CodedColumn, once
from privtab.state.index_parts import IndexDocument, IndexParts, Parts
from privtab.state.links import GROUP_PREFIX
from privtab.state.names import StateNames
from privtab.state.principal_rows import SEPARATOR, HeldRoles, ScopedEntries

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
    keys: Callable[[], int] | None = None
    """The number of the keys of the first level, if it is known without the rows."""

    def __len__(self) -> int:
        """The number of the keys of the first level."""
        return self.keys() if self.keys is not None else sum(len(once(codes[0])) for codes in self.blocks())

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
    """Return whether no text has a byte that JSON may escape; one pass over all bytes, faster than a regular expression."""
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


class ColumnIndex(IndexParts):
    """The parts of an index in columns of numbers; no row holds for a time.

    For example:

        tables, roles = ColumnIndex(program, state).tables()
    """

    def tables(self) -> tuple[dict[str, tuple[list[Codes], list[pa.Array]]], dict[str, tuple[str, str]]]:
        """By part, the rows as one column of numbers for each level, and the texts of each level; and the part `within`."""
        parts = self.of_entities()[0] | self.of_people()[0]
        tables = {
            name: (part.columns(), [level.texts for level in part.levels])
            for name, part in parts.items()
            if isinstance(part, Part)
        }
        return tables, {principal: (role, scope) for principal, (role, scope) in parts["within"].items()}

    @staticmethod
    def given(program: Program, grants: Mapping[str, CodedColumn]) -> dict[str, CodedColumn]:
        """The columns of grants with a row for each privilege that a row allows or denies, as `PrivilegeNames.privileges_of`."""
        privileges, entities, effects = (grants[name] for name in ("privilege", "entity", "effect"))
        types = list(program.entities)
        kinds = np.zeros(len(entities.array), np.int64)
        for number, type_ in enumerate(types):
            kinds[arrow.array_truth(pc.starts_with(entities.array, f"{type_}:"))] = number
        cells = (privileges.codes * len(types) + kinds[entities.codes]) * 2 + _denied(effects)
        occurs = np.zeros(len(privileges.array) * len(types) * 2, np.bool_)
        occurs[cells] = True
        distinct, inverse = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[cells]
        names = StateNames(program)
        privileges_of_distinct = [
            names.privileges_of(
                privileges.names[code // 2 // len(types)], types[code // 2 % len(types)], GRANTS[code % 2]
            )
            for code in distinct.tolist()
        ]
        granted = CodedColumn.of_texts(chain.from_iterable(privileges_of_distinct))
        owners = np.repeat(np.arange(len(distinct)), [*map(len, privileges_of_distinct)])
        rows, codes = Lists(owners, granted.codes, len(distinct)).values_of(inverse)
        found = {name: CodedColumn(column.codes[rows], column.array) for name, column in grants.items()}
        return found | {"privilege": CodedColumn(codes, granted.array)}

    def grants(self, scoped: ScopedEntries) -> Parts:
        """As IndexParts.grants."""
        written = {name: self._column("grants", name) for name in ("grantee", "effect", "privilege", "entity")}
        columns = self.given(self.program, written)
        merged = []
        for position, name in enumerate(("privilege", "entity", "grantee"), start=1):
            extra = CodedColumn.of_texts(key[position] for key in scoped)
            codes, texts = _sorted(columns[name].followed_by(extra))
            merged.append((codes[: len(columns[name])], codes[len(columns[name]) :], texts))
        denied = _denied(columns["effect"])
        found: IndexDocument = {}
        for effect in GRANTS:
            of_effect = denied == (effect == "deny")
            added = np.array([key[0] == effect for key in scoped], np.bool_)
            levels = _distinct(
                [np.concatenate([column[of_effect], extra[added]]) for column, extra, _ in merged],
                [len(texts) for _, _, texts in merged],
            )
            leaves = None
            if added.any():
                row_numbers = {
                    row: number for number, row in enumerate(zip(*(level.tolist() for level in levels), strict=True))
                }
                numbers = np.zeros(len(levels[0]), np.int64)
                for number in np.flatnonzero(added).tolist():
                    numbers[row_numbers[tuple(int(extra[number]) for _, extra, _ in merged)]] = number + 1
                leaves = numbers, [sorted(origins) for origins in scoped.values()]
            around = (('":{', "}},"), ('":{', "},"), ('":true' if leaves is None else '":', ","))
            styles = tuple(
                Level(texts, '"', after, between)
                for (_, _, texts), (after, between) in zip(merged, around, strict=True)
            )
            found[effect] = Part(partial(iter, [levels]), styles, "}}", leaves)
        return found, {}

    def pairs(self, table: str, key: str, name: str) -> tuple[Part, IndexDocument]:
        """As IndexParts.pairs."""
        keys, names = _sorted(self._column(table, key)), _sorted(self._column(table, name))
        rows = _distinct((keys[0], names[0]), (len(keys[1]), len(names[1])))
        return Part(lambda: [rows], (Level(keys[1], '"', '":{', "},"), Level(names[1], '"', '":true', ",")), "}"), {}

    def names(self, table: str, name: str) -> Part:
        """As IndexParts.names."""
        codes, texts = _sorted(self._column(table, name))
        return Part(lambda: [(once(codes),)], (Level(texts, '"', '":true', ","),), "")

    def held_by_name(self, roles: HeldRoles) -> _HeldByName:
        """As IndexParts.held_by_name."""
        return _HeldByName(self._column, roles)

    def _column(self, table: str, name: str) -> CodedColumn:
        return CodedColumn.of_column(self.state.column(table, name))


def _denied(effects: CodedColumn) -> Truth:
    """For each row, whether it denies."""
    found: Truth = effects.codes == arrow.position(effects.array, "deny")
    return found


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


class _HeldByName:
    def __init__(self, column: Callable[[str, str], CodedColumn], roles: HeldRoles) -> None:
        direct = arrow.text_array([*roles.named_themselves])
        holders, role_names, scopes = (column("assignments", name) for name in ("principal", "role", "scope"))
        members, groups = (column("memberships", name) for name in ("user", "group"))
        nested = arrow.array_truth(pc.starts_with(members.array, GROUP_PREFIX))
        if not roles.used.state_groups:
            counts = np.append(nested, False)[members.codes]
            members, groups = members.rows(counts), groups.rows(counts)
            nested = np.ones(len(members.array), np.bool_)
        member_names = pc.if_else(arrow.truth_array(nested), members.array, _prefixed("user:", members.array))
        name_sources = (holders.array, direct, member_names, _prefixed(GROUP_PREFIX, groups.array))
        self._names, (holder, direct_holder, member, group) = _united(name_sources)
        """Users and groups, and roles that hold others."""
        of_groups = arrow.array_truth(pc.starts_with(self._names, GROUP_PREFIX))
        self._holds_something = np.zeros(len(self._names), np.bool_)
        """Those that hold something themselves, or that others contain."""
        self._holds_something[np.concatenate([holder, direct_holder, member])] = True
        self._members = Lists(member[members.codes], group[groups.codes], len(self._names))

        assignment_numbers, principals = _assigned_principals(roles, role_names, scopes)
        self._principals, (assigned, name_principals) = _united((principals.array, self._names))
        has_effect = principals.codes[assignment_numbers] >= 0
        own_holders = (
            np.append(direct_holder, np.flatnonzero(of_groups)) if roles.used.group_membership else direct_holder
        )
        self._holds = Lists(
            np.append(holder[holders.codes][has_effect], own_holders),
            np.append(assigned[principals.codes[assignment_numbers][has_effect]], name_principals[own_holders]),
            len(self._names),
        )
        is_declared = np.array([*map(roles.is_declared, role_names.names)], np.bool_)
        scoped = (scopes.codes >= 0) & is_declared[role_names.codes]
        (scope, self._scopes), (role, self._roles) = _sorted(scopes), _sorted(role_names)
        pairs, pair_numbers = np.unique(scope[scoped] * len(role_names.array) + role[scoped], return_inverse=True)
        self._pairs = np.divmod(pairs, max(len(role_names.array), 1))
        self._scoped = Lists(holder[holders.codes][scoped], pair_numbers, len(self._names))

    def principals(self, kind: str, named: Collection[str] | None) -> tuple[Part, IndexDocument]:
        people, texts = self._people(kind, named)
        levels = Level(texts, '"', '":"', '",'), Level(self._principals, "", "", json.dumps(SEPARATOR)[1:-1])
        blocks = partial(self._values_of, people, self._holds, len(self._principals))
        return Part(blocks, levels, '"', keys=partial(self._holding, people)), {}

    def scoped(self, kind: str, named: Collection[str] | None) -> tuple[Part, IndexDocument]:
        people, texts = self._people(kind, named)
        scope, role = self._pairs
        levels = (
            Level(texts, '"', '":{', "]},"),
            Level(self._scopes, '"', '":[', "],"),
            Level(self._roles, '"role:', '"', ","),
        )

        def blocks() -> Iterator[tuple[Codes, Codes, Codes]]:
            for positions, pair in self._values_of(people, self._scoped, len(scope)):
                yield positions, scope[pair], role[pair]

        return Part(blocks, levels, "]}"), {}

    def _people(self, kind: str, named: Collection[str] | None) -> tuple[Codes, pa.Array]:
        """The numbers of the principals of a kind that may hold something, only some if they are named; and their names."""
        prefix = f"{kind}:"
        of_kind = arrow.array_truth(pc.starts_with(self._names, prefix)) & self._holds_something
        if named is not None:
            of_kind &= arrow.array_truth(pc.is_in(self._names, value_set=arrow.text_array(sorted(named))))
        people: Codes = np.flatnonzero(of_kind)
        return people, pc.utf8_slice_codeunits(self._names.take(arrow.integer_array(people)), len(prefix))

    def _holding(self, people: Codes) -> int:
        """The number of users or groups that have principals."""
        return int(np.count_nonzero(self._counts_of(people, self._holds)))

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
        """The number of values of some people and their groups, with repetitions."""
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
