"""States without the rows about entities that lie nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from privtab.base import Entity
from privtab.ir import Program
from privtab.state import ENTITY_COLUMNS, TABLE_COLUMNS, State, locations


def placed(program: Program, state: State) -> State:
    """The state without the rows about entities that no row places: they count for nothing, and are errors in files."""
    where = locations(program, state)
    kept: Any = {}
    columns = [(table, name) for table, own in TABLE_COLUMNS.items() for name in own.names if name in ENTITY_COLUMNS]
    for table, column in columns if program.flat else ():
        keys = state.column(table, column)
        nowhere = {key for key in keys.names if where.find(Entity.parse(key)) is None}
        if nowhere and table != "entities":
            kept[table] = state.table(table).some([row for row, key in enumerate(keys) if key not in nowhere])
    return replace(state, **kept) if kept else state
