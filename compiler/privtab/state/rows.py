"""Rows of a large state: columns, from which rows are made on access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from privtab.request import Entity
from privtab.state.nodes import Assignment, AttributeRow, Grant, Placement
from privtab.state.raw import COLUMNS, ENTITIES

if TYPE_CHECKING:
    from privtab.state.coded import CodedColumn

_MAKE: Mapping[str, Callable[..., Any]] = {
    "members": lambda user, of: (user, of),
    "memberships": lambda user, group: (user, group),
    "assignments": lambda principal, role, scope: Assignment(principal=principal, role=role, scope=scope),
    "grants": lambda grantee, effect, privilege, entity: Grant(
        grantee=grantee, effect=effect, privilege=privilege, entity=entity
    ),
    "owners": lambda entity, owner: (entity, owner),
    "service_admins": lambda user: user,
    "attributes": lambda attribute, value, user, entity: AttributeRow(
        user=user, entity=entity, attribute=attribute, value=value
    ),
    "entities": lambda entity, parent, name: Placement(entity=entity, parent=parent, name=name),
}


def rows_of(table: str, cells: Iterable[Sequence[str | None]]) -> Iterator[Any]:
    """Rows in the form that `State` has, from their texts."""
    names = COLUMNS[table].names
    return (_MAKE[table](*map(_value, names, texts)) for texts in cells)


class ColumnRows(Sequence[Any]):
    """The rows of one table, in the form that `State` has."""

    def __init__(self, table: str, columns: Mapping[str, CodedColumn]) -> None:
        """`columns`: all columns of the table, in its order."""
        self.table = table
        self.columns = dict(columns)

    def column(self, table: str, name: str) -> CodedColumn:
        """As State.column."""
        assert table == self.table
        return self.columns[name]

    def some(self, row_numbers: list[int]) -> ColumnRows:
        """Some of the rows, ascending."""
        import numpy as np

        selected = np.array(row_numbers, np.int64)
        return ColumnRows(self.table, {name: column.rows(selected) for name, column in self.columns.items()})

    def with_more(self, cells: Sequence[Sequence[str | None]]) -> ColumnRows:
        """The rows, and others from their texts."""
        from privtab.state.coded import CodedColumn, appended

        columns = zip(*cells, strict=True) if cells else [()] * len(self.columns)
        more = map(CodedColumn.of_texts, columns)
        own = self.columns.items()
        return ColumnRows(self.table, {name: appended(column, next(more)) for name, column in own})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return self._rows[position]
        if "_rows" in self.__dict__:
            return self._rows[position]
        row = range(len(self))[position]
        return _MAKE[self.table](*(_value(name, column.take([row])[0]) for name, column in self.columns.items()))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> tuple[Any, ...]:
        """All rows; repeated texts and entities share one object."""
        values = []
        for name, column in self.columns.items():
            known = [*(_value(name, text) for text in column.names), None]
            values.append([known[code] for code in column.codes.tolist()])
        return tuple(map(_MAKE[self.table], *values))

    def __getstate__(self) -> tuple[str, Mapping[str, CodedColumn]]:
        return self.table, self.columns

    def __setstate__(self, state: tuple[str, Mapping[str, CodedColumn]]) -> None:
        ColumnRows.__init__(self, *state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def _value(column: str, text: str | None) -> Any:
    return Entity.parse(text) if text is not None and column in ENTITIES else text
