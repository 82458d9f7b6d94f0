"""Columns of large tables: each text is stored once, and each row has its text's number. Needs numpy and pyarrow.

The rows of a large table as read are such columns, from which single rows are made for findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from privtab.base import arrow
from privtab.base.arrow import Codes, Truth
from privtab.state import raw
from privtab.state.findings import RowLocation
from privtab.state.nodes import Column
from privtab.state.raw import TABLE_COLUMNS, RawReader, RawRow

FEW = 16
"""Look-ups that are answered by scanning the column, before it is sorted for more of them; texts that are converted one by one."""


class CodedColumn(Column):
    """A column as numbers of its texts. As state.nodes.Column; each text of `array` occurs once, and in some row.

    >>> list(CodedColumn.of_texts(["ann", None, "ann"]))
    ['ann', None, 'ann']
    """

    coded = True

    def __init__(self, codes: npt.NDArray[np.integer], array: pa.Array) -> None:
        """`codes`: for each row the number of its text in `array`, or -1 if it has none."""
        self.codes: Codes = codes.astype(np.int64, copy=False)
        self.array = array
        self._looked_up = self._read = 0

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray) -> CodedColumn:
        """Convert an Arrow column of strings, or of dictionaries of them."""
        if isinstance(texts, pa.ChunkedArray):
            if pa.types.is_dictionary(texts.type):
                texts = texts.unify_dictionaries()
            texts = texts.combine_chunks()
        coded = texts if isinstance(texts, pa.DictionaryArray) else texts.cast(pa.string()).dictionary_encode()
        found = cls(arrow.array_numbers(coded.indices), coded.dictionary.cast(pa.string()))
        # A file's own dictionary may have repeated or unused texts.
        return found.mapped(found.array) if coded is texts else found

    @classmethod
    def of_texts(cls, texts: Iterable[str | None]) -> CodedColumn:
        """Convert single texts, of any length and with any repetitions."""
        numbers: dict[str, int] = {}
        codes = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
        return cls(np.array(codes, np.int64), arrow.text_array(list(numbers)))

    @classmethod
    def of_column(cls, column: Column) -> CodedColumn:
        """Convert any column; one of numbers is itself.

        >>> from privtab.state import State
        >>> CodedColumn.of_column(State(memberships=[("ann", "hr"), ("bob", "hr")]).column("memberships", "group")).codes.tolist()
        [0, 0]
        """
        return column if isinstance(column, CodedColumn) else cls.of_texts(column)

    @classmethod
    def without_texts(cls, rows: int) -> CodedColumn:
        """A column of so many rows, none of which has a text."""
        return cls(np.full(rows, -1, np.int64), arrow.text_array([]))

    @classmethod
    def repeated(cls, text: str, rows: int) -> CodedColumn:
        """A column of so many rows, each of which has a text."""
        return cls(np.zeros(rows, np.int64), arrow.text_array([text] if rows else []))

    def compact(self) -> CodedColumn:
        """Drop texts that no row has."""
        occurs = np.zeros(len(self.array) + 1, np.bool_)
        occurs[self.codes] = True
        if occurs[:-1].all():
            return self
        number = np.append(np.cumsum(occurs[:-1]) - 1, -1)
        return CodedColumn(number[self.codes], self.array.filter(arrow.truth_array(occurs[:-1])))

    def replaced(self, to: pa.Array) -> CodedColumn:
        """As `mapped`; the column itself if each text is mapped to itself."""
        return self if to.equals(self.array) else self.mapped(to)

    def mapped(self, to: pa.Array) -> CodedColumn:
        """The column with `to[number]` for each text; equal texts become one, those that no row has are dropped."""
        distinct = to.dictionary_encode()
        code_of_old = np.append(arrow.array_numbers(distinct.indices), -1)
        return CodedColumn(code_of_old[self.codes], distinct.dictionary).compact()

    def rows(self, selected: Sequence[int] | npt.NDArray[np.integer] | Truth) -> CodedColumn:
        """As Column.rows."""
        codes = self.codes[selected]
        return self if len(codes) == len(self) else CodedColumn(codes, self.array).compact()

    def with_more(self, texts: Sequence[str | None]) -> CodedColumn:
        """As Column.with_more."""
        return self.followed_by(CodedColumn.of_texts(texts))

    def followed_by(self, other: CodedColumn) -> CodedColumn:
        """The rows of both, one after the other."""
        if not len(other):
            return self
        size, both = len(self.array), pa.concat_arrays([self.array, other.array])
        codes = np.concatenate([self.codes, np.where(other.codes < 0, -1, other.codes + size)])
        return CodedColumn(codes, both).mapped(both)

    @staticmethod
    def numbered_rows(columns: Iterable[CodedColumn]) -> Codes:
        """Number the rows by what several columns contain together: equal numbers for equal rows.

        >>> numbers = CodedColumn.numbered_rows([CodedColumn.of_texts("aab"), CodedColumn.of_texts("xxx")])
        >>> bool(numbers[0] == numbers[1] != numbers[2])
        True
        """
        return numbered((column.codes, len(column.array)) for column in columns)[0]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str | None]:
        names: list[str | None] = [*self.names, None]
        return (names[code] for code in self.codes.tolist())

    def __getstate__(self) -> tuple[Codes, pa.Array]:
        return self.codes, self.array

    def __setstate__(self, state: tuple[Codes, pa.Array]) -> None:
        CodedColumn.__init__(self, *state)

    @cached_property
    def names(self) -> Sequence[str]:
        """As Column.names."""
        found: list[str] = self.array.to_pylist()
        return found

    def text(self, number: int) -> str:
        """One of the texts; all of them are converted, as `names`, once more than a few were asked for."""
        self._read += 1
        found: str = (
            self.array[number].as_py() if self._read <= FEW and "names" not in self.__dict__ else self.names[number]
        )
        return found

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each text."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def runs(self) -> tuple[Codes, Codes]:
        """The rows grouped by text, and the position where each text's rows begin, starting with -1's."""
        order = np.argsort(self.codes, kind="stable")
        first = np.searchsorted(self.codes[order], np.arange(-1, len(self.array) + 1))
        return order, first

    def where(self, texts: Iterable[str]) -> list[int]:
        """As Column.where."""
        sought = set(texts)
        self._looked_up += len(sought)
        if self._looked_up <= FEW and "numbers" not in self.__dict__:
            found = [number for text in sought if (number := arrow.position(self.array, text)) >= 0]
        else:
            found = [self.numbers[text] for text in sought if text in self.numbers]
        if not found:
            return []
        if (self._looked_up <= FEW and "runs" not in self.__dict__) or len(found) * FEW**2 > len(self.codes):
            rows = np.flatnonzero(np.isin(np.arange(len(self.array) + 1), found)[self.codes])
        else:
            order, first = self.runs
            runs = [order[first[number + 1] : first[number + 2]] for number in found]
            rows = runs[0] if len(runs) == 1 else np.sort(np.concatenate(runs))
        row_numbers: list[int] = rows.tolist()
        return row_numbers

    def take(self, rows: Iterable[int]) -> list[str | None]:
        """As Column.take."""
        codes = self.codes[np.fromiter(rows, np.int64)].tolist()
        if "names" in self.__dict__ or len(codes) > FEW:
            names = self.names
            return [None if code < 0 else names[code] for code in codes]
        return [None if code < 0 else self.array[code].as_py() for code in codes]


def numbered(columns: Iterable[tuple[Codes, int]]) -> tuple[Codes, int]:
    """Number the rows of columns of numbers, from -1 on and below a size: equal numbers for equal rows, below one size."""
    found: Codes | None = None
    size = 1
    for codes, below in columns:
        count = below + 1
        if found is None:
            found, size = codes + 1, count
            continue
        if size * count >= 1 << 62:
            distinct, found = np.unique(found, return_inverse=True)
            size = len(distinct)
        found, size = found * count + codes + 1, size * count
    assert found is not None
    return found, size


def once(values: Codes) -> Codes:
    """Distinct numbers, sorted; `np.unique` sorts only after it has built a hash table."""
    found = np.sort(values)
    new = np.ones(len(found), np.bool_)
    new[1:] = found[1:] != found[:-1]
    return found[new]


class RawTable(Sequence[RawRow]):
    """The rows of one table. `columns` are in the order of the file; the cells of a row are texts, or absent if optional.

    For example:

        table = RawTable.of(raw.rows["grants"])
        table[0].cells["grantee"]
    """

    def __init__(
        self, path: str, table: str, columns: Mapping[str, CodedColumn], numbers: Codes, lines: Codes | None
    ) -> None:
        self.path = path
        self.table = table
        self.columns = dict(columns)
        self.numbers = numbers
        """The 1-based number of each row in its table."""
        self.lines = lines

    @classmethod
    def of(cls, rows: Sequence[RawRow]) -> RawTable:
        """Convert single rows of one file, at least one."""
        if isinstance(rows, RawTable):
            return rows
        first = rows[0]
        columns = {
            name: CodedColumn.of_texts(row.cells.get(name) for row in rows) for name in TABLE_COLUMNS[first.table].all
        }
        lines = None if first.line is None else np.array([row.line for row in rows], np.int64)
        return cls(first.path, first.table, columns, np.array([row.number for row in rows], np.int64), lines)

    @classmethod
    def read(
        cls, reader: RawReader, path: str, table: str, columns: Mapping[str, CodedColumn], line: int | None = None
    ) -> RawTable | None:
        """Add to a reader the rows of a table whose columns are right, and return those; wrong rows are reported one by one.

        `line`: the line of the first row, if rows have lines.
        """
        complete = np.ones(len(next(iter(columns.values()))), np.bool_)
        columns_without_empty: dict[str, CodedColumn] = {}
        for name, column in columns.items():
            empty = arrow.position(column.array, "")
            absent = column.codes < 0 if empty < 0 else (column.codes < 0) | (column.codes == empty)
            if name in TABLE_COLUMNS[table].required:
                complete &= ~absent
            columns_without_empty[name] = (
                column if empty < 0 else CodedColumn(np.where(absent, -1, column.codes), column.array).compact()
            )
        for row in np.flatnonzero(~complete).tolist():
            cells = {name: None if (code := c.codes[row]) < 0 else c.names[code] for name, c in columns.items()}
            reader.row(path, table, row + 1, None if line is None else line + row, cells)
        row_numbers = np.flatnonzero(complete)
        if len(row_numbers) > raw.MOST_COLUMN_ROWS:
            row = int(row_numbers[raw.MOST_COLUMN_ROWS])
            place = RowLocation(path=path, table=table, row=row + 1, line=None if line is None else line + row)
            reader.too_much(f"`{table}` has more than {raw.MOST_COLUMN_ROWS:,} rows", place)
            row_numbers = row_numbers[: raw.MOST_COLUMN_ROWS]
        if not len(row_numbers):
            return None
        order = TABLE_COLUMNS[table].all if line is None else columns_without_empty  # CSV shows valid rows as written
        rows = {name: columns_without_empty[name].rows(row_numbers) for name in order if name in columns_without_empty}
        found = RawTable(path, table, rows, row_numbers + 1, None if line is None else row_numbers + line)
        reader.large[table] = found
        return found

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self[row] for row in range(len(self))[position])
        row = range(len(self))[position]
        found = ((name, column, column.codes[row]) for name, column in self.columns.items())
        cells = {name: column.text(code) for name, column, code in found if code >= 0}
        if len(cells) < len(self.columns):
            cells = {name: cells[name] for name in TABLE_COLUMNS[self.table].all if name in cells}
        line = None if self.lines is None else int(self.lines[row])
        return RawRow(self.path, self.table, int(self.numbers[row]), line, cells)

    def __iter__(self) -> Iterator[RawRow]:
        return (self[row] for row in range(len(self)))

    def column(self, name: str) -> CodedColumn:
        """A column; without any text if the table lacks it."""
        found = self.columns.get(name)
        return CodedColumn.without_texts(len(self)) if found is None else found
