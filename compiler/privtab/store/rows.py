"""The rows that a store holds, in memory: brought forward by the journal, and turned into a checked state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import Connection, select

from privtab.effects import Change
from privtab.errors import StateInvalid, StoreError
from privtab.ir.nodes import Program
from privtab.state.load import cells_of
from privtab.state.nodes import State
from privtab.state.raw import COLUMNS, RawRow, RawState
from privtab.state.validate import validate
from privtab.store.schema import STATE, row_id

Cells: TypeAlias = Mapping[str, str]
ABOUT = {
    "members": ("user", "of"),
    "memberships": ("user", "group"),
    "assignments": ("principal", "role"),
    "grants": ("grantee", "entity"),
    "owners": ("entity",),
    "service_admins": ("user",),
    "attributes": ("user", "entity", "attribute"),
    "entities": ("entity",),
}
"""The columns that say what a row is about: changes of rows about the same thing conflict."""


class Rows:
    """Every row of a store at one moment: by table and id, the change that added it and its cells."""

    def __init__(self, tables: Mapping[str, Mapping[str, tuple[int, Cells]]] | None = None) -> None:
        self.tables = {name: dict((tables or {}).get(name, {})) for name in COLUMNS}

    @classmethod
    def read(cls, connection: Connection) -> Rows:
        """The rows in the SQL tables."""
        rows = cls()
        for name, table in STATE.items():
            for row in connection.execute(select(table)).mappings():
                cells = {cell: row[cell] for cell in COLUMNS[name].all if row[cell] is not None}
                rows.tables[name][row["id"]] = row["change"], cells
        return rows

    def apply(self, number: int, changes: Iterable[Change]) -> None:
        """Carry out the changes of one entry of the journal. Raises StoreError for one that does not fit."""
        for change in changes:
            cells: Any = change.row
            if change.table not in self.tables or cells is None:
                raise StoreError(f"change {number} of the journal names no row of a table")
            table, id_ = self.tables[change.table], row_id(cells)
            if (id_ in table) == (change.action == "add"):
                verb = "adds a row that exists" if change.action == "add" else "removes a row that does not exist"
                raise StoreError(f"change {number} of the journal {verb}, in `{change.table}`")
            if change.action == "add":
                table[id_] = number, {name: cells[name] for name in COLUMNS[change.table].all if name in cells}
            else:
                del table[id_]

    def changed(self, number: int, changes: Iterable[Change]) -> Rows:
        """The rows after some changes."""
        rows = Rows(self.tables)
        rows.apply(number, changes)
        return rows

    def as_tables(self) -> dict[str, list[dict[str, str]]]:
        """The rows in the order in which they were added, as `state.load.from_tables` takes them."""
        ordered = {
            name: sorted(table.items(), key=lambda item: (item[1][0], item[0])) for name, table in self.tables.items()
        }
        return {name: [dict(cells) for _, (_, cells) in rows] for name, rows in ordered.items()}


def checked(program: Program, rows: Rows, shown: str, more: RawState | None = None) -> tuple[State, list[Change]]:
    """The state of some rows and of more that are added, and the changes that add the latter.

    Rows to add that are there already change nothing. Raises StateInvalid, with every finding, for a row that is wrong.
    """
    added = more or RawState()
    tables: dict[str, tuple[RawRow, ...]] = {}
    for name, table in rows.tables.items():
        new = tuple(added.rows.get(name, ()))
        if table or new:
            # Numbers tell rows apart; those of the rows to add stay as they were read.
            first = max((row.number for row in new), default=0) + 1
            old = (RawRow(shown, name, first + at, None, cells) for at, (_, cells) in enumerate(table.values()))
            tables[name] = (*old, *new)
    state, findings = validate(program, RawState(rows=tables, findings=added.findings), notes=False)
    if errors := tuple(finding for finding in findings if finding.severity == "error"):
        raise StateInvalid(errors, "nothing is decided or changed")
    changes = {
        (name, id_): Change("add", name, row=dict(cells))
        for name in COLUMNS
        if name in added.rows
        for cells in islice(cells_of(state, name), len(rows.tables[name]), None)
        if (id_ := row_id(cells)) not in rows.tables[name]
    }
    return state, list(changes.values())


def about(change: Change) -> tuple[str, ...]:
    """What the row of a change is about: its table, and some of its cells."""
    cells = change.row or {}
    return change.table, *(cells.get(name) or "" for name in ABOUT[change.table])
