"""Columns of requests: each distinct request and text once, the entities on their paths by number, and the attributes that rows give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Truth, text_bytes
from privtab.base.attributes import AttributeKind, Attributes, GivenAttributes
from privtab.base.names import ESCAPES, UNUSABLE
from privtab.base.records import dataclass
from privtab.engines.arrays import Arrays, TypeArrays
from privtab.engines.lookups import few_repeat

TextPool: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[str | None]
"""A column of texts."""
Reasons: TypeAlias = npt.NDArray[np.uint8]


class Unevaluated(IntEnum):
    """The reason for which a row is denied without evaluation; OK: the row was evaluated.

    >>> Unevaluated.DEPTH.text
    'wrong depth'
    """

    text: str | None
    """The reason as users see it."""

    def __new__(cls, number: int, text: str | None = None) -> Self:
        """A number with its text."""
        found = int.__new__(cls, number)
        found._value_, found.text = number, text
        return found

    OK = 0, None
    NULL = 1, "null"
    MALFORMED = 2, "malformed path"
    DEPTH = 3, "wrong depth"
    UNKNOWN = 4, "unknown operation"
    WITH = 5, "not of a type that the operation takes"
    FLAG = 6, "a required flag is missing"
    ATTRIBUTE = 7, "invalid attribute"
    NAME = 8, "malformed name"
    NO_ROLE = 9, "no active role is named"


# Plain numbers, which numpy takes for no more than a byte.
OK, NULL, MALFORMED, DEPTH, UNKNOWN, WITH, FLAG, ATTRIBUTE, NAME, NO_ROLE = map(int, Unevaluated)

_SLASH = ord("/")
WELL_SPELT = r"\A(?:(?:[^%]|%2F|%25)*|(?:%2A|%3F)+)\z"
WILDCARD = r"\A[*?]+\z"
_LEADING = (b"\xc2", b"\xe2\x80", b"\xef\xbf")
"""How unusable characters beyond ASCII begin in UTF-8."""


def texts(column: TextPool) -> pa.Array:
    """A column as one array of strings. Raises pyarrow.ArrowException if it is not text."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        return pa.array(column, pa.string())
    return column if column.type == pa.string() else column.cast(pa.string())


def without_end(column: pa.Array, depth: int) -> pa.Array:
    """Paths without the `/` at their end, where a path of `depth` names leaves off the last one."""
    ends = pc.ends_with(column, "/")
    if not pc.any(ends).as_py():
        return column
    unnamed = pc.and_(ends, pc.equal(pc.count_substring(column, "/"), depth - 1))
    return pc.if_else(pc.fill_null(unnamed, False), pc.utf8_slice_codeunits(column, 0, -1), column)  # noqa: FBT003


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Paths with the same number of names, split into the paths above them and their last names."""

    texts: pa.Array
    parents: pa.Array
    """The distinct paths above them."""
    parent_codes: Codes
    """For each path, the position of the path above it in `parents`."""
    names: pa.Array
    """The last names, each once unless few of many repeat."""
    name_codes: Codes
    """For each path, the position of its last name in `names`."""


_EMPTY = arrow.text_array([""])


class Paths:
    """A column of paths of entities of one type, all with the same number of names.

    Everything about the paths above them is found once for each distinct one, level by level.
    """

    def __init__(
        self,
        texts: pa.Array,
        width: int,
        arrays: Arrays,
        chains: Mapping[str, Sequence[tuple[str, int]]],
        slashes: Codes | None = None,
    ) -> None:
        """`texts`: paths without nulls, with `width` names each; `slashes`: the positions of all their slashes, if they are known."""
        self.width = width
        self._arrays = arrays
        self._chains = chains
        self._levels: dict[int, Level] = {width: level_of(texts, width, slashes, repeats=True)}
        self._places: dict[str, Codes] = {}

    def level(self, depth: int) -> Level:
        """The distinct paths of the first `depth` names; for the whole width, the paths as given."""
        if depth not in self._levels:
            self._levels[depth] = level_of(self.level(depth + 1).parents, depth)
        return self._levels[depth]

    def good(self) -> Truth:
        """Find the paths that have neither an empty name nor a wrong escape or character."""
        by_level = [_well_spelt(self.level(depth).names) for depth in range(1, self.width + 1)]
        if all(good.all() for good in by_level):
            return np.ones(len(self.level(self.width).texts), np.bool_)
        well_spelt = np.ones(1, np.bool_)
        for depth, good in enumerate(by_level, 1):
            level = self.level(depth)
            well_spelt = well_spelt[level.parent_codes] & good[level.name_codes]
        return well_spelt

    def places(self, type_: str, positions: Codes | None, among: TypeArrays | None = None) -> Codes:
        """The entities of a type, by number, at positions of its level (None: at all); -1 if the state does not name the entity.

        `among`: entities of the type that may be left out are missing in it.
        """
        if self._chains[type_][-1][1] == self.width:
            return self._find_places(type_, positions, among)
        if type_ not in self._places:
            self._places[type_] = self._find_places(type_, None)
        return select(self._places[type_], positions)

    def _find_places(self, type_: str, positions: Codes | None, among: TypeArrays | None = None) -> Codes:
        chain = self._chains[type_]
        kind, level = among or self._arrays.kinds[type_], self.level(chain[-1][1])
        if len(chain) == 1:
            containers = np.zeros(len(level.texts) if positions is None else len(positions), np.int64)
        else:
            containers = self.places(
                chain[-2][0], positions if chain[-2][1] == chain[-1][1] else select(level.parent_codes, positions)
            )
        return kind.find(
            containers, None if kind.single else kind.names.find(level.names)[select(level.name_codes, positions)]
        )


def select(values: Codes, positions: Codes | None) -> Codes:
    """The values at some positions; None: all."""
    return values if positions is None else values[positions]


def level_of(texts: pa.Array, width: int, slashes: Codes | None = None, *, repeats: bool = False) -> Level:
    """Split paths with `width` names each. `slashes`: the positions of all slashes, if known; `repeats`: whether a last name may stand twice."""
    count = len(texts)
    zeros = np.zeros(count, np.int64)
    if width == 0:
        return Level(texts=texts, parents=_EMPTY, parent_codes=zeros, names=_EMPTY, name_codes=zeros)
    parents, parent_codes, names, name_codes = _EMPTY, zeros, texts, np.arange(count)
    if width > 1:
        offsets, content = text_bytes(texts)
        # Each path is cut behind its last slash: two texts that follow each other in the same bytes.
        cuts = np.empty(2 * count + 1, np.int32)
        cuts[0::2] = offsets
        slashes = np.flatnonzero(content == _SLASH) if slashes is None else slashes
        np.add(slashes[width - 2 :: width - 1], 1, out=cuts[1::2], casting="same_kind")
        pieces = pa.StringArray.from_buffers(2 * count, pa.py_buffer(cuts), pa.py_buffer(content))
        encoded = pieces.take(pa.array(np.arange(0, 2 * count, 2))).dictionary_encode()
        parents, parent_codes = _without_end(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)
        names = pieces.take(pa.array(np.arange(1, 2 * count, 2)))
    if not (repeats and few_repeat(names)):
        encoded = names.dictionary_encode()
        names, name_codes = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    return Level(texts=texts, parents=parents, parent_codes=parent_codes, names=names, name_codes=name_codes)


def _without_end(texts: pa.Array) -> pa.Array:
    """Texts without their last byte, which is a slash."""
    offsets, content = text_bytes(texts)
    remaining = np.ones(len(content), np.bool_)
    remaining[offsets[1:] - 1] = False
    shorter = offsets - np.arange(len(offsets), dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(shorter), pa.py_buffer(content[remaining]))


def widths(texts: pa.Array, usual: int) -> tuple[Codes, Codes]:
    """The number of names of each path, fastest if all paths have `usual` names; and the positions of all slashes."""
    offsets, content = text_bytes(texts)
    count = len(texts)
    slashes = np.flatnonzero(content == _SLASH)
    if usual > 1 and len(slashes) == count * (usual - 1):
        slashes_by_path = slashes.reshape(count, usual - 1)
        if (slashes_by_path[:, 0] >= offsets[:-1]).all() and (slashes_by_path[:, -1] < offsets[1:]).all():
            return np.full(count, usual, np.int64), slashes
    return np.diff(np.searchsorted(slashes, offsets)) + (np.diff(offsets) > 0), slashes


def unusable(texts: pa.Array) -> Truth | None:
    """Find the texts that have a character that no name may contain, as `names.unusable`; None if none has. Nulls have none."""
    _, content = text_bytes(texts)
    if not len(content) or (int(content.min()) >= ord(" ") and int(content.max()) < 127):
        return None
    signs = content.tobytes()
    if int(content.min()) >= ord(" ") and b"\x7f" not in signs and not any(sign in signs for sign in _LEADING):
        return None
    found: Truth = pc.match_substring_regex(texts, f"[{UNUSABLE}]").fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return found if found.any() else None


def _well_spelt(names: pa.Array) -> Truth:
    """Find the names that are neither empty nor spelt with a wrong escape, an unusable character or as a wildcard."""
    good: Truth = pc.binary_length(names).to_numpy() > 0
    if (unusable_names := unusable(names)) is not None:
        good &= ~unusable_names
    # Searching all bytes at once is much faster than text by text.
    content = text_bytes(names)[1].tobytes()
    if any(sign in content for sign in (b"%", b"*", b"?")):
        good &= pc.match_substring_regex(names, WELL_SPELT).to_numpy(zero_copy_only=False)
        good &= ~pc.match_substring_regex(names, WILDCARD).to_numpy(zero_copy_only=False)
    return good


def well_formed(ids: pa.Array) -> Truth:
    """Find the paths, with any number of names, that have neither an empty name nor a wrong escape or character; an empty path has no name."""
    lists = pc.split_pattern(ids, "/")
    good = np.ones(len(ids), np.bool_)
    rows = np.repeat(np.arange(len(ids)), np.diff(lists.offsets.to_numpy()))
    good[rows[~_well_spelt(lists.values)]] = False
    good[pc.equal(pc.binary_length(ids), 0).to_numpy(zero_copy_only=False)] = True
    return good


def decoded(names: pa.Array) -> pa.Array:
    """Names of paths, decoded to the form of principals' names."""
    for sign, escape in reversed(ESCAPES):
        names = pc.replace_substring(names, escape, sign)
    return names


@dataclass(frozen=True, slots=True)
class GivenColumns:
    """Values by (of what, slot if it is of an entity, name): an Arrow column, in which null is no value, or one value for all rows.

    Example: `given = GivenColumns.read({"user": {"region": pa.array(["EU"])}}, attributes).take(rows)`.
    """

    values: Mapping[tuple[AttributeKind, str, str], Any] = field(default_factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any] | None, declared: Attributes) -> GivenColumns:
        """Read columns in the form of `GivenAttributes.read`. Raises InvalidRequest for an attribute that requests do not give."""
        found = {(kind, slot, name): value for kind, slot, name, value in GivenAttributes.read(values or {}).each()}
        for kind, _, name in found:
            declared.requested(kind, name)
        return cls(found)

    def of_types(self, declared: Attributes, types: Mapping[str, str]) -> GivenColumns:
        """Those that entities of the types in the slots have; others do not concern a request."""
        names = {slot: declared.declared_on(type_) for slot, type_ in types.items()}
        kept = {k: v for k, v in self.values.items() if k[0] != "entity" or k[2] in names.get(k[1], ())}
        return self if len(kept) == len(self.values) else GivenColumns(kept)

    def take(self, rows: Codes | None) -> GivenColumns:
        """The values of some rows; None: of all."""
        if rows is None:
            return self
        indices = pa.array(rows)
        return GivenColumns({k: v.take(indices) if isinstance(v, pa.Array) else v for k, v in self.values.items()})

    def any(self, count: int) -> Truth:
        """Find which of `count` rows give any attribute."""
        found = np.zeros(count, np.bool_)
        for value in self.values.values():
            found |= (
                value.is_valid().to_numpy(zero_copy_only=False) if isinstance(value, pa.Array) else value is not None
            )
        return found

    def rows(self, count: int) -> Iterator[GivenAttributes]:
        """The attributes of each of `count` rows."""
        lists = [(k, v.to_pylist() if isinstance(v, pa.Array) else [v] * count) for k, v in self.values.items()]
        for row in range(count):
            found: dict[tuple[AttributeKind, str], dict[str, Any]] = {}
            for (kind, slot, name), column in lists:
                if column[row] is not None:
                    found.setdefault((kind, slot), {})[name] = column[row]
            yield _attributes(found) if found else GivenAttributes.NONE


def _attributes(values: Mapping[tuple[AttributeKind, str], Mapping[str, Any]]) -> GivenAttributes:
    return GivenAttributes(
        user=values.get(("user", ""), {}),
        entity=values.get(("entity", ""), {}),
        request=values.get(("request", ""), {}),
        with_={slot: of_slot for (kind, slot), of_slot in values.items() if kind == "entity" and slot},
    )


NONE_GIVEN = GivenColumns()
