"""Columns of a state's tables, for look-ups by text: which rows have a text, and what other columns have there.

Entities are texts here, `table:m/c/s/t`. Standard library only: `coded.py` has the columns of large states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import ClassVar


class Column(ABC):
    """The texts of one column, by row from 0 on; None for a row without one."""

    coded: ClassVar[bool] = False
    """Whether it is `coded.CodedColumn`."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of rows."""

    @abstractmethod
    def __iter__(self) -> Iterator[str | None]:
        """The text of each row."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Every text in some row, once."""

    @abstractmethod
    def where(self, texts: Iterable[str]) -> list[int]:
        """The rows with any of the texts, ascending."""

    @abstractmethod
    def take(self, rows: Iterable[int]) -> list[str | None]:
        """The texts of some rows."""

    def rows(self, selected: Sequence[int]) -> Column:
        """Some of the rows, ascending."""
        return ListColumn(self.take(selected))

    def with_more(self, texts: Sequence[str | None]) -> Column:
        """The rows, and others after them."""
        return ExtendedColumn(self, ListColumn(texts))


class ListColumn(Column):
    """A column of few rows."""

    def __init__(self, texts: Iterable[str | None]) -> None:
        self._texts = list(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._texts)

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, text in enumerate(self._texts):
            if text is not None:
                found.setdefault(text, []).append(row)
        return found

    @property
    def names(self) -> Sequence[str]:
        """As Column.names."""
        return tuple(self._rows)

    def where(self, texts: Iterable[str]) -> list[int]:
        """As Column.where."""
        found = [rows for text in set(texts) if (rows := self._rows.get(text))]
        return found[0] if len(found) == 1 else sorted(chain.from_iterable(found))

    def take(self, rows: Iterable[int]) -> list[str | None]:
        """As Column.take."""
        return [self._texts[row] for row in rows]


class ExtendedColumn(Column):
    """A column with more rows appended."""

    def __init__(self, first: Column, more: Column) -> None:
        self._first: Column = first
        self._more: Column = more
        if isinstance(first, ExtendedColumn):
            self._first, self._more = first._first, ListColumn((*first._more, *more))  # noqa: SLF001  (its own)

    def __len__(self) -> int:
        return len(self._first) + len(self._more)

    def __iter__(self) -> Iterator[str | None]:
        return chain(self._first, self._more)

    @property
    def names(self) -> Sequence[str]:
        """As Column.names."""
        return tuple(dict.fromkeys((*self._first.names, *self._more.names)))

    def where(self, texts: Iterable[str]) -> list[int]:
        """As Column.where."""
        sought, first_length = set(texts), len(self._first)
        return [*self._first.where(sought), *(first_length + row for row in self._more.where(sought))]

    def take(self, rows: Iterable[int]) -> list[str | None]:
        """As Column.take."""
        first_length = len(self._first)
        return [(self._first.take([r]) if r < first_length else self._more.take([r - first_length]))[0] for r in rows]
