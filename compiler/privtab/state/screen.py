"""Determine which rows of large tables need no finding, from the distinct texts of their columns.

Findings for the other rows come from `validate`, row by row. A text that is not clearly valid is read once, by the same code
as there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab import arrow
from privtab.arrow import Codes, Truth
from privtab.characters import LONGEST_NAME
from privtab.names import KINDS
from privtab.request import Entity
from privtab.state.coded import CodedColumn, groups
from privtab.state.names import Problem, StateNames
from privtab.state.raw_table import RawTable

_SUSPICIOUS = r"[^\pL\pM\pN\pP\pS ]|[%*?]|\A | \z"
"""Controls, separators and unassigned characters; wildcards and escapes; leading and trailing spaces."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """An assessment of each distinct text of a column: whether it needs no finding, the number of its kind, and its meaning."""

    good: Truth
    kinds: Codes
    replacements: pa.Array

    def of_rows(self, column: CodedColumn) -> tuple[Truth, Codes]:
        """`good` and `kinds` by row; a row without a text is good."""
        return np.append(self.good, True)[column.codes], np.append(self.kinds, -1)[column.codes]


class TextAssessor:
    """Assesses texts of columns by the names of one policy."""

    def __init__(self, names: StateNames) -> None:
        self.names = names
        self.types = tuple(names.program.entities)
        """Entity types by number."""

    def entities(self, column: CodedColumn) -> Assessment:
        """Entities; the kind is the entity type."""
        texts = column.array
        slashes = arrow.numbers(pc.count_substring(texts, "/"))
        plain = self._plain(texts, r"|//|/\z|\A[^:]*:(?:/|\z)")
        kinds = np.full(len(texts), -1, np.int64)
        for number, type_ in enumerate(self.types):
            shape = self.names.shapes[type_]
            if shape.depth and shape.flat is None:
                fits = (slashes >= shape.depth - 1) & (slashes <= shape.most - 1)
                kinds[plain & fits & _starts_with(texts, f"{type_}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.entity(text)
            return (self.types.index(found.type), str(found)) if isinstance(found, Entity) else None

        return _assess(texts, kinds, texts, read)

    def principals(self, column: CodedColumn, allowed: Collection[str], bare: str | None = None) -> Assessment:
        """Principals as `kind:name`, or as names alone of the kind `bare`; kinds are numbered as in KINDS."""
        texts = column.array
        colons = arrow.numbers(pc.count_substring(texts, ":"))
        plain = self._plain(texts, r"|:\z") & (colons == 1)
        kinds = np.full(len(texts), -1, np.int64)
        for number, kind in enumerate(KINDS):
            if kind in allowed:
                kinds[plain & _starts_with(texts, f"{kind}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.principal(text, KINDS if bare else tuple(allowed), bare)
            if isinstance(found, Problem) or found[0] not in allowed:
                return None
            return KINDS.index(found[0]), f"{found[0]}:{found[1]}" if bare else text

        return _assess(texts, kinds, texts, read)

    def bare(
        self, column: CodedColumn, kind: str, reader: Callable[[str, str], str | Problem] | None = None
    ) -> Assessment:
        """Names of one kind, read by `reader` if it is given."""
        texts = column.array
        colons = arrow.numbers(pc.count_substring(texts, ":"))
        kinds = np.where(self._plain(texts, "") & (colons == 0), 0, -1)

        def read(text: str) -> tuple[int, str] | None:
            found = (reader or self.names.bare)(text, kind)
            return None if isinstance(found, Problem) else (0, found)

        return _assess(texts, kinds, texts, read)

    def each(
        self, column: CodedColumn, good: Callable[[str], bool], replacement: Callable[[str], str] = str
    ) -> Assessment:
        """Texts of a column with few distinct ones."""
        found = [good(text) for text in column.names]
        texts = arrow.texts([replacement(text) for text in column.names])
        return Assessment(np.array(found, np.bool_), np.arange(len(found)), texts)

    def _plain(self, texts: pa.Array, alternatives: str) -> Truth:
        suspicious = arrow.truth(pc.match_substring_regex(texts, _SUSPICIOUS + alternatives))
        short: Truth = arrow.numbers(pc.binary_length(texts)) <= LONGEST_NAME
        return short & ~suspicious


def _starts_with(texts: pa.Array, prefix: str) -> Truth:
    return arrow.truth(pc.starts_with(texts, prefix))


def _assess(
    texts: pa.Array, kinds: npt.NDArray[np.int64], replacements: pa.Array, read: Callable[[str], tuple[int, str] | None]
) -> Assessment:
    """Assess texts, reading those one by one that are not clearly valid."""
    good = kinds >= 0
    unread = np.flatnonzero(~good)
    changed: dict[int, str] = {}
    for number, text in zip(unread.tolist(), texts.take(arrow.integers(unread)).to_pylist(), strict=True):
        found = read(text)
        if found is not None:
            kinds[number] = found[0]
            good[number] = text == text.strip()
            if found[1] != text:
                changed[number] = found[1]
    if changed:
        listed = replacements.to_pylist()
        for number, text in changed.items():
            listed[number] = text
        replacements = arrow.texts(listed)
    return Assessment(good, kinds, replacements)


def all_pairs(first: Codes, second: Codes, good: Callable[[int, int], bool]) -> Truth:
    """Which rows have a good pair of numbers; each distinct pair is checked once. Numbers are -1 or more."""
    distinct, inverse = np.unique((first + 1) << 32 | (second + 1), return_inverse=True)
    pairs = ((pair >> 32, pair & 0xFFFFFFFF) for pair in distinct.tolist())
    found: Truth = np.array([good(x - 1, y - 1) for x, y in pairs], np.bool_)[inverse]
    return found


def repeated(columns: Mapping[str, CodedColumn]) -> Codes:
    """For each row, the number of the first equal row, which may be its own."""
    found = groups(columns.values())
    _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    result: Codes = first[inverse]
    return result


def column(table: RawTable, name: str) -> CodedColumn:
    """A column of a table; empty if the table lacks it."""
    found = table.columns.get(name)
    return CodedColumn(np.full(len(table), -1, np.int64), arrow.texts([])) if found is None else found
