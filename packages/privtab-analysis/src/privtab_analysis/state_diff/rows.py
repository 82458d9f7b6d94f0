"""The rows that only one of two states has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privtab.base import WINDOW_COLUMNS, Window
from privtab.state import TABLE_COLUMNS, Places, RawState, State, as_written, index_document
from privtab_analysis.state_diff.nodes import ChangedAccess, ChangedRow

if TYPE_CHECKING:
    from privtab.ir import Program

LARGE = 20_000
"""Rows of a table from which on columns are compared: loading numpy and pyarrow takes as long as comparing fewer rows."""


def as_stored(program: Program, state: State) -> State:
    """The rows of a state as a reader of its bundle finds the rows."""
    from privtab.bundle import state_of_index

    return as_written(program, state_of_index(index_document(program, state)))


def changed_rows(
    before: State, after: State, places: tuple[Places, Places] = (Places.NONE, Places.NONE)
) -> Iterator[ChangedRow]:
    """The rows that were removed and added, table by table, in the order of their states; repeated rows count once."""
    for table in TABLE_COLUMNS:
        removed, added = _only(before, after, table)
        yield from _rows(before, table, removed, places[0], added=False)
        yield from _rows(after, table, added, places[1], added=True)


def with_tables_of(first: State, second: State) -> State:
    """The second state, with each large table of the first that has the same rows, so that it is looked into once for both."""
    alike: Any = {}
    for table, columns in TABLE_COLUMNS.items():
        rows, others = getattr(first, table), getattr(second, table)
        if len(rows) != len(others) or len(rows) < LARGE or table in first.windows or table in second.windows:
            continue
        from privtab.state import CodedColumn
        from privtab_analysis.state_diff.columns import same

        coded = CodedColumn.of_column
        if all(same(coded(first.column(table, n)), coded(second.column(table, n))) for n in columns.names):
            alike[table] = rows
    return replace(second, **alike) if alike else second


def added_rows(rows: Iterable[ChangedRow]) -> State:
    """The added ones of some changed rows alone."""
    tables: Any = {}
    for row in rows:
        if row.added:
            tables.setdefault(row.table, []).append(row.value)
    return State(**tables)


def _only(before: State, after: State, table: str) -> tuple[list[int], list[int]]:
    """The numbers of the rows that only the first state has, and of the rows that only the second has."""
    windows = table in before.windows or table in after.windows
    if getattr(before, table) is getattr(after, table) and not windows:
        return [], []
    names = TABLE_COLUMNS[table].all if windows else TABLE_COLUMNS[table].names
    if min(len(getattr(before, table)), len(getattr(after, table))) >= LARGE:
        from privtab.state import CodedColumn
        from privtab_analysis.state_diff.columns import only_in_one

        coded = CodedColumn.of_column
        # One pair after the other: all columns of large tables at once take much memory.
        return only_in_one((coded(before.column(table, name)), coded(after.column(table, name))) for name in names)
    return _only_in_one(before.texts(table, *names), after.texts(table, *names))


def _only_in_one(
    before: Iterable[tuple[object, ...]], after: Iterable[tuple[object, ...]]
) -> tuple[list[int], list[int]]:
    """The numbers of the rows that only the first has, and of the rows that only the second has; the first of equal rows."""
    was, now = ({row: n for n, row in reversed([*enumerate(rows)])} for rows in (before, after))
    return sorted(was[row] for row in was.keys() - now), sorted(now[row] for row in now.keys() - was)


def _rows(state: State, table: str, numbers: list[int], places: Places, *, added: bool) -> Iterator[ChangedRow]:
    names = TABLE_COLUMNS[table].all
    columns = [state.column(table, name).take(numbers) for name in names]
    for number, *row in zip(numbers, *columns, strict=True):
        yield ChangedRow(
            table=table,
            cells={name: text for name, text in zip(names, row, strict=True) if text is not None},
            added=added,
            place=places.of(table, number),
            value=getattr(state, table)[number],
        )


def with_windows(access: Iterable[ChangedAccess], rows: Iterable[ChangedRow], moment: int) -> Iterator[ChangedAccess]:
    """The changed access of a moment, with the rows as they have windows in the states instead of the plain ones."""
    full: dict[ChangedRow, ChangedRow] = {}
    for row in rows:
        if Window.between(*(row.cells.get(name) for name in WINDOW_COLUMNS)).holds(moment):
            plain = {name: text for name, text in row.cells.items() if name not in WINDOW_COLUMNS}
            full.setdefault(replace(row, cells=plain), row)
    for change in access:
        yield replace(change, rows=tuple(full[row] for row in change.rows))


def changed_raw_rows(before: RawState, after: RawState) -> Iterator[ChangedRow]:
    """The same for rows as read, without a policy that gives them a meaning."""
    for table in TABLE_COLUMNS:
        rows_before, rows_after = before.rows.get(table, ()), after.rows.get(table, ())
        if min(len(rows_before), len(rows_after)) >= LARGE:
            from privtab.state import RawTable
            from privtab_analysis.state_diff.columns import only_in_one

            tables = RawTable.of(rows_before), RawTable.of(rows_after)
            names = TABLE_COLUMNS[table].all
            removed, added = only_in_one([(tables[0].column(name), tables[1].column(name)) for name in names])
        else:
            removed, added = _only_in_one(
                *((tuple(row.cells.items()) for row in rows) for rows in (rows_before, rows_after))
            )
        for rows, numbers, is_added in ((rows_before, removed, False), (rows_after, added, True)):
            for number in numbers:
                row = rows[number]
                yield ChangedRow(table=table, cells=row.cells, added=is_added, place=row.place)
