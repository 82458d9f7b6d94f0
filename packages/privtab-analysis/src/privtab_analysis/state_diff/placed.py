"""States without the rows about entities that lie nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from privtab.base import Entity
from privtab.ir.nodes import Program
from privtab.state.located import locations
from privtab.state.nodes import ENTITIES, NAMING, State


def placed(program: Program, state: State) -> State:
    """The state without the rows about entities that no row places: they count for nothing, and are errors in files."""
    where = locations(program, state)
    kept: Any = {}
    for table, column in NAMING if program.flat else ():
        keys = state.column(table, column)
        nowhere = {key for key in keys.names if where.find(Entity.parse(key)) is None}
        if nowhere and table != ENTITIES:
            kept[table] = state.table(table).some([row for row, key in enumerate(keys) if key not in nowhere])
    return replace(state, **kept) if kept else state
