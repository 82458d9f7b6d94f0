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

_ODD = r"[^\pL\pM\pN\pP\pS ]|[%*?]|\A | \z"
"""Controls, separators and unassigned characters; wildcards and escapes; leading and trailing spaces."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An assessment of each distinct text of a column: whether it needs no finding, the number of its kind, and its meaning."""

    good: Truth
    kinds: Codes
    means: pa.Array

    def of_rows(self, column: CodedColumn) -> tuple[Truth, Codes]:
        """`good` and `kinds` by row; a row without a text is good."""
        return np.append(self.good, True)[column.codes], np.append(self.kinds, -1)[column.codes]


class TextJudge:
    """Assesses texts of columns by the names of one policy."""

    def __init__(self, names: StateNames) -> None:
        self.names = names
        self.types = tuple(names.program.entities)
        """Entity types by number."""

    def entities(self, column: CodedColumn) -> Judged:
        """Entities; the kind is the entity type."""
        texts = column.array
        slashes = arrow.numbers(pc.count_substring(texts, "/"))
        plain = self._plain(texts, r"|//|/\z|\A[^:]*:(?:/|\z)")
        kinds = np.full(len(texts), -1, np.int64)
        for number, type_ in enumerate(self.types):
            depth = self.names.program.depths[type_]
            if depth:
                kinds[plain & (slashes == depth - 1) & _begin(texts, f"{type_}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.entity(text)
            return (self.types.index(found.type), text) if isinstance(found, Entity) else None

        return _judged(texts, kinds, texts, read)

    def principals(self, column: CodedColumn, allowed: Collection[str], bare: str | None = None) -> Judged:
        """Principals as `kind:name`, or as names alone of the kind `bare`; kinds are numbered as in KINDS."""
        texts = column.array
        colons = arrow.numbers(pc.count_substring(texts, ":"))
        plain = self._plain(texts, r"|:\z") & (colons == 1)
        kinds = np.full(len(texts), -1, np.int64)
        for number, kind in enumerate(KINDS):
            if kind in allowed:
                kinds[plain & _begin(texts, f"{kind}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.principal(text, KINDS if bare else tuple(allowed), bare)
            if isinstance(found, Problem) or found[0] not in allowed:
                return None
            return KINDS.index(found[0]), f"{found[0]}:{found[1]}" if bare else text

        return _judged(texts, kinds, texts, read)

    def bare(self, column: CodedColumn, kind: str) -> Judged:
        """Names of one kind."""
        texts = column.array
        colons = arrow.numbers(pc.count_substring(texts, ":"))
        kinds = np.where(self._plain(texts, "") & (colons == 0), 0, -1)

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.bare(text, kind)
            return None if isinstance(found, Problem) else (0, found)

        return _judged(texts, kinds, texts, read)

    def each(self, column: CodedColumn, good: Callable[[str], bool], means: Callable[[str], str] = str) -> Judged:
        """Texts of a column with few distinct ones."""
        found = [good(text) for text in column.names]
        texts = arrow.texts([means(text) for text in column.names])
        return Judged(np.array(found, np.bool_), np.arange(len(found)), texts)

    def _plain(self, texts: pa.Array, more: str) -> Truth:
        odd = arrow.truth(pc.match_substring_regex(texts, _ODD + more))
        short: Truth = arrow.numbers(pc.binary_length(texts)) <= LONGEST_NAME
        return short & ~odd


def _begin(texts: pa.Array, prefix: str) -> Truth:
    return arrow.truth(pc.starts_with(texts, prefix))


def _judged(
    texts: pa.Array, kinds: npt.NDArray[np.int64], means: pa.Array, read: Callable[[str], tuple[int, str] | None]
) -> Judged:
    """Assess texts, reading those one by one that are not clearly valid."""
    good = kinds >= 0
    rest = np.flatnonzero(~good)
    changed: dict[int, str] = {}
    for at, text in zip(rest.tolist(), texts.take(arrow.integers(rest)).to_pylist(), strict=True):
        found = read(text)
        if found is not None:
            kinds[at] = found[0]
            good[at] = text == text.strip()
            if found[1] != text:
                changed[at] = found[1]
    if changed:
        listed = means.to_pylist()
        for at, text in changed.items():
            listed[at] = text
        means = arrow.texts(listed)
    return Judged(good, kinds, means)


def all_pairs(one: Codes, other: Codes, good: Callable[[int, int], bool]) -> Truth:
    """Which rows have a good pair of numbers; each distinct pair is checked once. Numbers are -1 or more."""
    once, at = np.unique((one + 1) << 32 | (other + 1), return_inverse=True)
    pairs = ((pair >> 32, pair & 0xFFFFFFFF) for pair in once.tolist())
    found: Truth = np.array([good(a - 1, b - 1) for a, b in pairs], np.bool_)[at]
    return found


def repeated(columns: Mapping[str, CodedColumn]) -> Codes:
    """For each row, the number of the first equal row, which may be its own."""
    found = groups(columns.values())
    _, first, at = np.unique(found, return_index=True, return_inverse=True)
    result: Codes = first[at]
    return result


def column(table: RawTable, name: str) -> CodedColumn:
    """A column of a table; empty if the table lacks it."""
    found = table.columns.get(name)
    return CodedColumn(np.full(len(table), -1, np.int64), arrow.texts([])) if found is None else found
