"""The rows that a store holds: looked up in its tables by their indexes, or in memory, brought forward by the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, or_, select

from privtab.base import Change, StateInvalid
from privtab.ir import Program
from privtab.state import TABLE_COLUMNS, RawRow, RawState, State, validate
from privtab_server.errors import StoreError
from privtab_server.store.database import CUT, INDEXES, STATE, cut, row_id

MOST_TEXTS = 400
"""Texts that one statement looks for."""
MOST_KNOWN = 10_000
"""Look-ups in one table whose rows are kept."""
MOST_STATES, MOST_ROWS = 100, 100
"""States that are kept, and the rows of each."""
INDEXED = {table: {name for columns in indexes for name in columns} for table, indexes in INDEXES.items()}


class Reader:
    """Look-ups in the tables of a store. What was read is known until somebody changes the table."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[Any, ...], Sequence[Any]]] = {}
        self._connection: Connection | None = None
        self._head = ""
        self.states: dict[tuple[tuple[str, ...], ...], State] = {}
        """Valid states by the ids of their rows in each table, which are hashes of what the rows say."""

    def at(self, connection: Connection, head: str) -> Reader:
        """The reader, for a transaction that sees the store with this hash of its last change."""
        if head != self._head:
            self._known.clear()
        self._connection, self._head = connection, head
        return self

    def changed(self, head: str, tables: Iterable[str]) -> None:
        """Forget the tables that were changed; `head`: the hash of the last change."""
        for table in tables:
            self._known.pop(table, None)
        self._head = head

    def forget(self) -> None:
        """Forget all, as when a transaction was not committed."""
        self._known.clear()
        self._head = ""

    def where(
        self, table: str, texts: Mapping[str, Sequence[str]], begins: tuple[str, str] | None = None
    ) -> Sequence[Any]:
        """The rows with one of some texts in each of some columns; `begins`: a column, and how its text begins."""
        key = tuple(texts), *map(tuple, texts.values()), begins
        found = self._known_in(table).get(key)
        return self._remembered(table, key, self._select_where(table, texts, begins)) if found is None else found

    def prefetch(self, table: str, lookups: Sequence[Mapping[str, Sequence[str]]]) -> None:
        """Read by one statement what several calls of `where` with the same columns will ask for."""
        columns = tuple(lookups[0])
        together = {name: sorted({text for texts in lookups for text in texts[name]}) for name in columns}
        if any(len(texts) > MOST_TEXTS for texts in together.values()):
            return
        rows = self._select_where(table, together, None)
        for texts in lookups:
            sought = [(2 + TABLE_COLUMNS[table].all.index(name), set(texts[name])) for name in columns]
            own = [row for row in rows if all(row[at] in names for at, names in sought)]
            self._remembered(table, (columns, *map(tuple, texts.values()), None), own)

    def read(self, table: str, statement: Select[Any], values: Mapping[str, Any]) -> Sequence[Any]:
        """The rows that a statement selects from a table."""
        key = statement, *(tuple(value) if isinstance(value, list) else value for value in values.values())
        found = self._known_in(table).get(key)
        return self._remembered(table, key, self._execute(statement, values)) if found is None else found

    def _known_in(self, table: str) -> dict[tuple[Any, ...], Sequence[Any]]:
        return self._known.setdefault(table, {})

    def _remembered(self, table: str, key: tuple[Any, ...], rows: Sequence[Any]) -> Sequence[Any]:
        known = self._known_in(table)
        if len(rows) <= MOST_TEXTS:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[key] = rows
        return rows

    def _select_where(
        self, table: str, texts: Mapping[str, Sequence[str]], begins: tuple[str, str] | None
    ) -> Sequence[Any]:
        values: dict[str, Any] = {}
        whole: set[str] = set()
        # A text that is shorter than the index cuts equals a cut text only if it equals the text.
        for name in texts:
            if name in INDEXED[table]:
                values[f"cut_{name}"] = [text[:CUT] for text in texts[name]]
            if name not in INDEXED[table] or any(len(text) >= CUT for text in texts[name]):
                whole.add(name)
                values[f"own_{name}"] = list(texts[name])
        if begins is not None:
            values["begin"] = f"{begins[1]}%"
        statement = select_where(table, tuple(texts), frozenset(whole), None if begins is None else begins[0])
        return self._execute(statement, values)

    def _execute(self, statement: Select[Any], values: Mapping[str, Any]) -> Sequence[Any]:
        assert self._connection is not None
        return self._connection.execute(statement, values).all()


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in parts of at most MOST_TEXTS."""
    return (texts[first : first + MOST_TEXTS] for first in range(0, len(texts), MOST_TEXTS))


@cache
def select_where(table: str, columns: tuple[str, ...], whole: frozenset[str], begins: str | None) -> Select[Any]:
    """The rows with one of some texts in each column: `cut_…` as in its index, and, in the columns `whole`, the texts `own_…`."""
    conditions: list[ColumnElement[bool]] = []
    for name in columns:
        column = STATE[table].c[name]
        if name in INDEXED[table]:
            conditions.append(cut(column).in_(bindparam(f"cut_{name}", expanding=True)))
        if name in whole:
            conditions.append(column.in_(bindparam(f"own_{name}", expanding=True)))
    if begins is not None:
        conditions.append(STATE[table].c[begins].like(bindparam("begin")))
    return _rows(table).where(and_(*conditions)) if conditions else _rows(table)


@cache
def select_below(table: str, column: str, *, within: bool) -> Select[Any]:
    """The rows with the text `own`, and the rows from `begin` to before `end`; `within`: whether these texts are as short as in the index."""
    text = STATE[table].c[column]
    low = cut(text) >= bindparam("cut_begin")
    around = and_(low, cut(text) < bindparam("cut_end")) if within else cut(text) == bindparam("cut_begin")
    return _rows(table).where(
        or_(
            and_(cut(text) == bindparam("cut_own"), text == bindparam("own")),
            and_(around, text >= bindparam("begin"), text < bindparam("end")),
        )
    )


@cache
def select_ids(table: str) -> Select[Any]:
    """Return the query for the `ids` that a table has."""
    return select(STATE[table].c.id).where(STATE[table].c.id.in_(bindparam("ids", expanding=True)))


def _rows(table: str) -> Select[Any]:
    columns = STATE[table].c
    return select(columns.id, columns.change, *(columns[name] for name in TABLE_COLUMNS[table].all))


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
        self.tables = {name: dict((tables or {}).get(name, {})) for name in TABLE_COLUMNS}

    @classmethod
    def read(cls, connection: Connection) -> Rows:
        """The rows in the SQL tables."""
        rows = cls()
        for name, table in STATE.items():
            for row in connection.execute(select(table)).mappings():
                cells = {cell: row[cell] for cell in TABLE_COLUMNS[name].all if row[cell] is not None}
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
                table[id_] = number, {name: cells[name] for name in TABLE_COLUMNS[change.table].all if name in cells}
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
        for name in TABLE_COLUMNS
        if name in added.rows
        for cells in islice(state.cells(name), len(rows.tables[name]), None)
        if (id_ := row_id(cells)) not in rows.tables[name]
    }
    return state, list(changes.values())


def about(change: Change) -> tuple[str, ...]:
    """Return the subject of a change's row: its table, and some of its cells."""
    cells = change.row or {}
    return change.table, *(cells.get(name) or "" for name in ABOUT[change.table])


def types_of_kind(program: Program, kind: str) -> list[str]:
    """The types of entities that are principals of a kind."""
    return [type_ for type_, entity in program.entities.items() if entity.principal == kind]
