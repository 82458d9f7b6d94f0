"""Rows of a large table as read: columns of texts, from which single rows are made for findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privtab import arrow
from privtab.arrow import Codes
from privtab.state import raw
from privtab.state.coded import CodedColumn
from privtab.state.nodes import RowLocation
from privtab.state.raw import COLUMNS, RawReader, RawRow


class RawTable(Sequence[RawRow]):
    """The rows of one table. `columns` are in the order of the file; the cells of a row are texts, or absent if optional."""

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
        columns = {name: CodedColumn.of_texts(row.cells.get(name) for row in rows) for name in COLUMNS[first.table].all}
        lines = None if first.line is None else np.array([row.line for row in rows], np.int64)
        return cls(first.path, first.table, columns, np.array([row.number for row in rows], np.int64), lines)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self[row] for row in range(len(self))[position])
        row = range(len(self))[position]
        found = ((name, column, column.codes[row]) for name, column in self.columns.items())
        cells = {name: column.text(code) for name, column, code in found if code >= 0}
        if len(cells) < len(self.columns):
            cells = {name: cells[name] for name in COLUMNS[self.table].all if name in cells}
        line = None if self.lines is None else int(self.lines[row])
        return RawRow(self.path, self.table, int(self.numbers[row]), line, cells)

    def __iter__(self) -> Iterator[RawRow]:
        return (self[row] for row in range(len(self)))

    def column(self, name: str) -> CodedColumn:
        """A column; without any text if the table lacks it."""
        found = self.columns.get(name)
        return CodedColumn(np.full(len(self), -1, np.int64), arrow.texts([])) if found is None else found


def take(reader: RawReader, path: str, table: str, columns: Mapping[str, CodedColumn], line: int | None = None) -> None:
    """Add the rows of a table whose columns are right; wrong rows are reported one by one.

    `line`: the line of the first row, if rows have lines.
    """
    complete = np.ones(len(next(iter(columns.values()))), np.bool_)
    columns_without_empty: dict[str, CodedColumn] = {}
    for name, column in columns.items():
        empty = arrow.position(column.array, "")
        absent = column.codes < 0 if empty < 0 else (column.codes < 0) | (column.codes == empty)
        if name in COLUMNS[table].required:
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
    if len(row_numbers):
        order = COLUMNS[table].all if line is None else columns_without_empty  # CSV shows valid rows as written
        rows = {name: columns_without_empty[name].rows(row_numbers) for name in order if name in columns_without_empty}
        reader.large[table] = RawTable(path, table, rows, row_numbers + 1, None if line is None else row_numbers + line)
