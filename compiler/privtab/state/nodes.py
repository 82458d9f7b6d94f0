"""The validated state, which the reference engine reads and every index is made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, TypeAlias

from privtab.errors import HasWindows
from privtab.moments import ALWAYS, WINDOW, Window, edge_texts
from privtab.printable import printable
from privtab.request import Entity
from privtab.state.columns import Column, ExtendedColumn, ListColumn

Effect: TypeAlias = Literal["allow", "deny"]
TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins", "attributes")
"""The tables that say who holds what."""
ENTITIES = "entities"
"""The table that says where the entities of types with flat ids lie."""
ALL_TABLES = (*TABLES, ENTITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLocation:
    """The position of a row: the file, its table, its 1-based number in the table, and the line if it is known."""

    path: str
    table: str
    row: int
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        table = f" {self.table}" if self.table else ""
        row = f" row {self.row}" if self.row else ""
        return f"{self.path}{line}" + (f":{table}{row}" if table or row else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One grant or denial. `grantee` is `user:…`, `group:…` or `role:…`; `privilege` is as written: possibly an alias or a set."""

    grantee: str
    effect: Effect
    privilege: str
    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`principal` (`user:…`, `group:…` or, in a hierarchy, `role:…`) holds `role` (a bare name), everywhere or within `scope`."""

    principal: str
    role: str
    scope: Entity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRow:
    """The value of an attribute of a user (a bare name) or of an entity, as text; of a set, one of its words."""

    user: str | None = None
    entity: Entity | None = None
    attribute: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an entity with a flat id lies; `name` is its name for people."""

    entity: Entity
    parent: Entity
    name: str | None = None


_ROWS: Mapping[str, tuple[str, ...]] = {
    "members": ("user", "of"),
    "memberships": ("user", "group"),
    "owners": ("entity", "owner"),
    "service_admins": ("user",),
}
"""The columns of the tables whose rows are plain tuples or texts."""
_NAMING = (
    ("members", "of"),
    ("assignments", "scope"),
    ("grants", "entity"),
    ("owners", "entity"),
    ("attributes", "entity"),
    ("entities", "entity"),
    ("entities", "parent"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All rows of a state, in the order of the input. User and group names are bare.

    Rows of a large state are made on access (`rows.ColumnRows`); `column` makes none.
    """

    members: Sequence[tuple[str, Entity]] = ()
    """(user, entity)"""
    memberships: Sequence[tuple[str, str]] = ()
    """(user, group). A group in a group is `group:…` in the place of the user, as no user is called."""
    assignments: Sequence[Assignment] = ()
    grants: Sequence[Grant] = ()
    owners: Sequence[tuple[Entity, str]] = ()
    """(entity, principal: `user:…`, `group:…` or `role:…`)"""
    service_admins: Sequence[str] = ()
    attributes: Sequence[AttributeRow] = ()
    entities: Sequence[Placement] = ()
    windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)
    """The window of each row, for the tables that have any: look-ups need the rows of one moment (`at`)."""
    _columns: Any = field(default_factory=dict, init=False, repr=False, compare=False)
    derived: Any = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was derived from the rows and is kept with them (`hierarchy.closed`)."""

    @property
    def has_columns(self) -> bool:
        """Whether a table is `rows.ColumnRows`, so that numpy and pyarrow are loaded."""
        return any(getattr(getattr(self, table), "columns", None) for table in TABLES)

    def column(self, table: str, name: str) -> Column:
        """One column of a table, by its name in files."""
        found: Column | None = self._columns.get((table, name))
        if found is None:
            found = self._columns[table, name] = (
                self._edges(table, name) if name in WINDOW else _column(getattr(self, table), table, name)
            )
        return found

    def distinct(self, *columns: tuple[str, str]) -> set[str]:
        """Every text in some columns, each given as (table, column)."""
        return {text for table, name in columns for text in self.column(table, name).names}

    def texts(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table as texts, each column by the name that it has in files."""
        return zip(*(self.column(table, name) for name in columns), strict=True)

    def named_entities(self) -> Iterator[str]:
        """Every entity that a row names, once, as `type:path`."""
        return iter(dict.fromkeys(text for column in _NAMING for text in self.column(*column).names))

    def windows_of(self, table: str) -> Sequence[Window]:
        """The window of each row of a table."""
        return self.windows.get(table) or [ALWAYS] * len(getattr(self, table))

    def _edges(self, table: str, name: str) -> Column:
        """The column `from` or `until`."""
        windows = self.windows.get(table)
        if windows is None:
            return ListColumn([None] * len(getattr(self, table)))
        return ListColumn(edge_texts(window)[WINDOW.index(name)] for window in windows)

    def edges(self) -> list[int]:
        """The moments at which the state changes, ascending."""
        return sorted({edge for windows in self.windows.values() for window in windows for edge in window} - {*ALWAYS})

    def held(self, moment: int) -> Mapping[str, list[int]]:
        """The rows that hold at a moment, for the tables that have windows; rows that then say the same are taken once."""
        found: dict[str, list[int]] = {}
        for table, windows in self.windows.items():
            rows = getattr(self, table)
            open_rows = [row for row, window in enumerate(windows) if window.holds(moment)]
            first_rows: dict[object, int] = {}
            for row in open_rows:
                first_rows.setdefault(rows[row], row)
            found[table] = open_rows if len(first_rows) == len(open_rows) else sorted(first_rows.values())
        return found

    def at(self, moment: int) -> State:
        """The state at a moment, without windows: the rows that hold then."""
        if not self.windows:
            return self
        return self.only(self.held(moment))

    def only(self, rows: Mapping[str, list[int]]) -> State:
        """The state, without windows, with some rows of the tables that have any."""
        tables: Any = {table: _some(getattr(self, table), rows[table]) for table in self.windows}
        return replace(self, windows={}, **tables)

    def some(self, rows: Mapping[str, list[int]]) -> State:
        """Some rows of the tables that are given, by their numbers, and of no others; without windows."""
        tables: Any = {table: _some(getattr(self, table), numbers) for table, numbers in rows.items() if numbers}
        return State(**tables)

    def plain(self, what: str) -> State:
        """The state itself, for what reads no windows; raises HasWindows if it has windows, since ignoring one is wrong either way."""
        if self.windows:
            tables = " and ".join(f"`{table}`" for table in self.windows)
            raise HasWindows(f"{what} takes no rows with `from` or `until`, and {tables} has some", self)
        return self

    def with_row(self, table: str, row: object) -> State:
        """The state with one more row."""
        longer: Any = {table: ExtendedRows(getattr(self, table), (row,))}
        return replace(self, **longer)


def merged(states: Iterable[State]) -> State:
    """The rows of several states, each once, without windows."""
    listed = list(states)
    rows: Any = {
        name: tuple(dict.fromkeys(chain.from_iterable(getattr(state, name) for state in listed))) for name in ALL_TABLES
    }
    return State(**rows)


class ExtendedRows(Sequence[Any]):
    """Rows with others appended, without copying the first."""

    __slots__ = ("first", "more")

    def __init__(self, first: Sequence[Any], more: tuple[Any, ...]) -> None:
        self.first: Sequence[Any] = first.first if isinstance(first, ExtendedRows) else first
        self.more: tuple[Any, ...] = (*first.more, *more) if isinstance(first, ExtendedRows) else more

    def __len__(self) -> int:
        return len(self.first) + len(self.more)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return (*self.first, *self.more)[at]
        before = len(self.first)
        return (
            self.first[at]
            if -len(self) <= at < before - len(self) or 0 <= at < before
            else self.more[at - before if at >= 0 else at]
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def column(self, table: str, name: str) -> Column:
        """As State.column."""
        return ExtendedColumn(_column(self.first, table, name), _column(self.more, table, name))


def _some(rows: Sequence[Any], numbers: list[int]) -> Sequence[Any]:
    """Some rows of a table: their columns if they have columns."""
    of = getattr(rows, "some", None)
    if of is not None:
        found: Sequence[Any] = of(numbers)
        return found
    return tuple(rows[row] for row in numbers)


def _column(rows: Sequence[Any], table: str, name: str) -> Column:
    """The column of any rows: their own one if they have columns."""
    own_column = getattr(rows, "column", None)
    if own_column is not None:
        found: Column = own_column(table, name)
        return found
    if table == "service_admins":
        return ListColumn(rows)
    if table in _ROWS:
        position = _ROWS[table].index(name)
        return ListColumn(str(row[position]) for row in rows)
    values = (getattr(row, name) for row in rows)
    return ListColumn(None if value is None else str(value) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFinding:
    """One wrong row: where, why, a hint, and whether it is quarantined (an error) or only reported (a warning, a note).

    A place without a table means the whole file; row 0 means the whole table.
    """

    place: RowLocation
    message: str
    code: str
    severity: Literal["error", "warning", "note"] = "error"
    help: str | None = None
    row: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """The position and the message, and below them the advice."""
        lines = [f"{self.place}: {self.severity}[{self.code}]: {self.message}"]
        if self.help is not None:
            lines.append(f"  help: {self.help}")
        return "\n".join(printable(line, one_line=True) for line in lines)
