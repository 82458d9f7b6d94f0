"""The validated state, which the reference engine reads and every index is made from.

Its columns are for look-ups by text: which rows have a text, and what other columns have there. Entities are texts here, `table:m/c/s/t`. Standard library only: `coded.py` has the columns of large states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from inspect import signature
from itertools import chain
from typing import Any, ClassVar, Literal, TypeAlias, cast

from privtab.base.errors import HasWindows
from privtab.base.moments import ALWAYS, WINDOW_COLUMNS, Window
from privtab.base.records import dataclass
from privtab.base.request import Entity


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


Effect: TypeAlias = Literal["allow", "deny"]
"""The effect of a grant, as the column `effect` has it: `deny` takes a privilege away."""
Cells: TypeAlias = tuple[str | None, ...]
"""A row as texts, in the order of the columns that its table has in every file (`raw.TABLE_COLUMNS`)."""
TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins", "attributes")
"""The tables that say who holds what."""
ENTITIES = "entities"
"""The table that says where the entities of types with flat ids lie."""
ALL_TABLES = (*TABLES, ENTITIES)
"""Every table of a state: `{table: len(getattr(state, table)) for table in ALL_TABLES}`."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant or denial. `grantee` is `user:…`, `group:…` or `role:…`; `privilege` is as written: possibly an alias or a set.

    >>> str(Grant("user:ann", "allow", "SELECT", Entity("table", "m/s/t")).entity)
    'table:m/s/t'
    """

    grantee: str
    effect: Effect
    privilege: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class Assignment:
    """`principal` (`user:…`, `group:…` or, in a hierarchy, `role:…`) holds `role` (a bare name), everywhere or within `scope`.

    >>> Assignment(principal="user:ann", role="analyst").scope is None
    True
    """

    principal: str
    role: str
    scope: Entity | None = None


@dataclass(frozen=True, slots=True)
class AttributeRow:
    """The value of an attribute of a user (a bare name) or of an entity, as text; of a set, one of its words.

    >>> AttributeRow(attribute="region", value="EU", user="ann").entity is None
    True
    """

    attribute: str
    value: str
    user: str | None = None
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of an entity with a flat id; `name` is its name for people.

    >>> Placement(entity=Entity("folder", "f2"), parent=Entity("folder", "f1")).name is None
    True
    """

    entity: Entity
    parent: Entity
    name: str | None = None


_MAKE: Mapping[str, Callable[..., Any]] = {
    "members": lambda user, of: (user, of),
    "memberships": lambda user, group: (user, group),
    "assignments": Assignment,
    "grants": Grant,
    "owners": lambda entity, owner: (entity, owner),
    "service_admins": lambda user: user,
    "attributes": AttributeRow,
    "entities": Placement,
}
"""What makes a row of each table from its cells."""
_NAMES = {table: tuple(signature(make).parameters) for table, make in _MAKE.items()}
"""The columns of each table."""
ENTITY_COLUMNS = ("entity", "of", "scope", "parent")
"""The columns that hold entities: `"scope" in ENTITY_COLUMNS`."""
NAMING = tuple((table, name) for table, names in _NAMES.items() for name in names if name in ENTITY_COLUMNS)
"""The same with their tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All rows of a state, in the order of the input. User and group names are bare.

    Rows that were read are columns, and made on access (`ColumnRows`); `column` makes none.

    >>> State(memberships=[("ann", "hr")]).column("memberships", "group").names
    ('hr',)
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
    lacks: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """What a bundle that the rows were read back from did not keep for filters (`names.UsedParts.for_filters`)."""
    _columns: Any = field(default_factory=dict, init=False, repr=False, compare=False)
    derived: Any = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was derived from the rows and is kept with them (`links.with_derived_rows`)."""

    @property
    def coded(self) -> bool:
        """True if a table has coded columns, so that numpy and pyarrow are loaded."""
        return any(isinstance(rows := getattr(self, table), ColumnRows) and rows.coded for table in TABLES)

    def column(self, table: str, name: str) -> Column:
        """One column of a table, by its name in files."""
        found: Column | None = self._columns.get((table, name))
        if found is None:
            found = self._edges(table, name) if name in WINDOW_COLUMNS else _column(getattr(self, table), table, name)
            self._columns[table, name] = found
        return found

    def table(self, name: str) -> ColumnRows:
        """The rows of a table by columns."""
        rows = getattr(self, name)
        if isinstance(rows, ColumnRows):
            return rows
        return ColumnRows(name, {column: self.column(name, column) for column in _NAMES[name]})

    def distinct(self, *columns: tuple[str, str]) -> set[str]:
        """Every text in some columns, each given as (table, column)."""
        return {text for table, name in columns for text in self.column(table, name).names}

    def texts(self, table: str, *columns: str, rows: Sequence[int] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of a table as texts, each column by the name that it has in files; `rows`: only these."""
        found = (self.column(table, name) for name in columns)
        return zip(*(column if rows is None else column.take(rows) for column in found), strict=True)

    def cells(self, table: str) -> Iterator[dict[str, str]]:
        """The rows of a table, each with its cells by column; an empty cell is left out.

        >>> list(State(memberships=[("ann", "hr")]).cells("memberships"))
        [{'user': 'ann', 'group': 'hr'}]
        """
        names = (*_NAMES[table], *(WINDOW_COLUMNS if table in self.windows else ()))
        for row in self.texts(table, *names):
            yield {name: text for name, text in zip(names, row, strict=True) if text is not None}

    def to_tables(self) -> dict[str, list[dict[str, str]]]:
        """The rows as `from_tables` takes them; every table is there that says who holds what."""
        return {table: list(self.cells(table)) for table in ALL_TABLES if table in TABLES or getattr(self, table)}

    def named_entities(self) -> Iterator[str]:
        """Every entity that a row names, once, as `type:path`."""
        return iter(dict.fromkeys(text for column in NAMING for text in self.column(*column).names))

    def windows_of(self, table: str) -> Sequence[Window]:
        """The window of each row of a table."""
        return self.windows.get(table) or [ALWAYS] * len(getattr(self, table))

    def _edges(self, table: str, name: str) -> Column:
        """The column `from` or `until`."""
        windows = self.windows.get(table)
        if windows is None:
            return ListColumn([None] * len(getattr(self, table)))
        return ListColumn(window.cells()[WINDOW_COLUMNS.index(name)] for window in windows)

    def edges(self) -> list[int]:
        """The moments at which the state changes, ascending."""
        return sorted({edge for windows in self.windows.values() for window in windows for edge in window} - {*ALWAYS})

    def held(self, moment: int) -> Mapping[str, list[int]]:
        """The rows that hold at a moment, for the tables that have windows; rows that then say the same are taken once."""
        found: dict[str, list[int]] = {}
        for table, windows in self.windows.items():
            open_rows = [row for row, window in enumerate(windows) if window.holds(moment)]
            first_rows: dict[object, int] = {}
            for row, cells in zip(open_rows, self.table(table).some(open_rows).cells(), strict=True):
                first_rows.setdefault(cells, row)
            found[table] = open_rows if len(first_rows) == len(open_rows) else sorted(first_rows.values())
        return found

    def at(self, moment: int) -> State:
        """The state at a moment, without windows: the rows that hold then."""
        if not self.windows:
            return self
        return self.only(self.held(moment))

    def only(self, rows: Mapping[str, list[int]]) -> State:
        """The state, without windows, with some rows of the tables that have any."""
        tables: Any = {table: self.table(table).some(rows[table]) for table in self.windows}
        return replace(self, windows={}, **tables)

    def some(self, rows: Mapping[str, list[int]]) -> State:
        """Some rows of the tables that are given, by their numbers, and of no others; without windows."""
        tables: Any = {table: self.table(table).some(numbers) for table, numbers in rows.items() if numbers}
        return State(lacks=self.lacks, **tables)

    def plain(self, what: str) -> State:
        """The state itself, for what reads no windows; raises HasWindows if it has windows, since ignoring one is wrong either way."""
        if self.windows:
            tables = " and ".join(f"`{table}`" for table in self.windows)
            raise HasWindows(f"{what} takes no rows with `from` or `until`, and {tables} has some", self)
        return self

    @classmethod
    def merged(cls, states: Iterable[State]) -> State:
        """The rows of several states, each once, without windows."""
        listed = list(states)
        rows: Any = {
            name: tuple(dict.fromkeys(chain.from_iterable(getattr(state, name) for state in listed)))
            for name in ALL_TABLES
        }
        return cls(lacks=frozenset().union(*(state.lacks for state in listed)), **rows)

    def with_row(self, table: str, row: object) -> State:
        """The state with one more row."""
        one = State(**cast("Any", {table: (row,)})).table(table)
        longer: Any = {table: self.table(table).followed_by(one)}
        return replace(self, **longer)


class ColumnRows(Sequence[Any]):
    """The rows of one table by columns, in the form that `State` has.

    >>> list(ColumnRows.of("memberships", [("ann", "hr")]))
    [('ann', 'hr')]
    """

    def __init__(self, table: str, columns: Mapping[str, Column]) -> None:
        """`columns`: all columns of the table, in its order."""
        self.name = table
        self.columns = dict(columns)

    @classmethod
    def of(cls, table: str, cells: Iterable[Cells]) -> ColumnRows:
        """The rows of a table from their texts."""
        names = _NAMES[table]
        columns = [*zip(*cells, strict=True)] or [()] * len(names)
        return cls(table, dict(zip(names, map(ListColumn, columns), strict=True)))

    @property
    def coded(self) -> bool:
        """True if the columns are `coded.CodedColumn`."""
        return all(column.coded for column in self.columns.values())

    def cells(self) -> Iterator[Cells]:
        """The rows as texts."""
        return zip(*self.columns.values(), strict=True)

    def some(self, numbers: Sequence[int]) -> ColumnRows:
        """Some of the rows, ascending."""
        return ColumnRows(self.name, {name: column.rows(numbers) for name, column in self.columns.items()})

    def with_more(self, cells: Sequence[Sequence[str | None]]) -> ColumnRows:
        """The rows, and others from their texts."""
        columns = zip(*cells, strict=True) if cells else [()] * len(self.columns)
        own = zip(self.columns.items(), columns, strict=True)
        return ColumnRows(self.name, {name: column.with_more(more) for (name, column), more in own})

    def followed_by(self, others: ColumnRows) -> ColumnRows:
        """The rows, and a few others, without copying the first."""
        more = others.columns
        return ColumnRows(self.name, {n: ExtendedColumn(column, more[n]) for n, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice) or "_rows" in self.__dict__:
            return self._rows[position]
        row = range(len(self))[position]
        return _MAKE[self.name](*(_value(name, column.take([row])[0]) for name, column in self.columns.items()))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> tuple[Any, ...]:
        """All rows; repeated texts and entities share one object."""
        values = []
        for name, column in self.columns.items():
            known = {text: _value(name, text) for text in (*column.names, None)}
            values.append(map(known.__getitem__, column))
        return tuple(map(_MAKE[self.name], *values))

    def __getstate__(self) -> tuple[str, Mapping[str, Column]]:
        return self.name, self.columns

    def __setstate__(self, state: tuple[str, Mapping[str, Column]]) -> None:
        ColumnRows.__init__(self, *state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def _value(column: str, text: str | None) -> Any:
    return Entity.parse(text) if text is not None and column in ENTITY_COLUMNS else text


def _column(rows: Sequence[Any], table: str, name: str) -> Column:
    """The column of any rows: their own one if they have columns."""
    if isinstance(rows, ColumnRows):
        return rows.columns[name]
    if table == "service_admins":
        return ListColumn(rows)
    values = (getattr(row, name) for row in rows)
    if table in ("members", "memberships", "owners"):
        position = _NAMES[table].index(name)
        values = (row[position] for row in rows)
    return ListColumn(None if value is None else str(value) for value in values)
