"""Rows of a state go to Arrow and come back by columns."""

from __future__ import annotations

from typing import Any

import generated_programs
import worlds

from privtab.state import State, StateNames
from privtab_spark.state.schemas import TABLES
from privtab_spark.state.tables import arrow_table, from_arrow


def texts(state: State) -> dict[str, set[tuple[Any, ...]]]:
    return {table: set(getattr(state, table)) for table in TABLES}


def test_rows_come_back_as_they_were() -> None:
    for seed in range(30):
        state = worlds.state(generated_programs.program(seed), seed)
        again = from_arrow({table: own for table in TABLES if len(own := arrow_table(table, state, None))})
        assert texts(again) == texts(state)
        assert all(len(set(rows)) == len(rows) for rows in (getattr(again, table) for table in TABLES))


def test_privileges_are_resolved_with_a_policy() -> None:
    resolved = 0
    for seed in range(30):
        program = generated_programs.program(seed)
        state, names = worlds.state(program, seed), StateNames(program)
        found = {tuple(row.values()) for row in arrow_table("grants", state, program).to_pylist()}
        assert found == {
            (g.grantee, g.effect, privilege, g.entity.type, g.entity.id)
            for g in state.grants
            for privilege in names.privileges_of(g.privilege, g.entity.type, g.effect)
        }
        resolved += sum(
            g.privilege not in names.privileges_of(g.privilege, g.entity.type, g.effect) for g in state.grants
        )
    assert resolved
