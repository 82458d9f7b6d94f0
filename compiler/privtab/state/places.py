"""The positions of a validated state's rows in its files, for explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privtab.moments import FIRST, LAST, WINDOW, Window, moment
from privtab.state.nodes import RowLocation
from privtab.state.raw import RawRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The raw row for each row of a state, by table, in the order of the state's own tuples. Empty if unknown."""

    rows: Mapping[str, Sequence[RawRow]] = field(default_factory=dict)

    def of(self, table: str, number: int) -> RowLocation | None:
        """The place of the row with this 0-based number in the state's table."""
        rows = self.rows.get(table, ())
        return rows[number].place if number < len(rows) else None

    def window(self, table: str, number: int) -> Window:
        """The window of the row with this 0-based number."""
        rows = self.rows.get(table, ())
        cells = rows[number].cells if number < len(rows) else {}
        begin, end = (cells.get(name) for name in WINDOW)
        return Window(FIRST if begin is None else moment(begin), LAST if end is None else moment(end))

    def some(self, selected: Mapping[str, Sequence[int]]) -> Places:
        """The places in a state of which only some rows were taken; `selected`: these, for the tables where not all were."""
        rows = {
            table: SelectedRows(self.rows[table], row_numbers)
            for table, row_numbers in selected.items()
            if table in self.rows
        }
        return Places(rows={**self.rows, **rows})


class SelectedRows(Sequence[RawRow]):
    """Some rows of a table."""

    def __init__(self, rows: Sequence[RawRow], selected: Sequence[int]) -> None:
        self._rows = rows
        self._selected = selected

    def __len__(self) -> int:
        return len(self._selected)

    def __getitem__(self, position: Any) -> Any:
        return tuple(self)[position] if isinstance(position, slice) else self._rows[self._selected[position]]


NOWHERE = Places()


def place_text(place: RowLocation | None) -> str:
    """`state.yaml:12`, or `state.json: grants row 3` if the line is unknown; empty without a place."""
    if place is None:
        return ""
    return f"{place.path}: {place.table} row {place.row}" if place.line is None else f"{place.path}:{place.line}"
