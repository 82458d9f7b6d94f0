"""Rows that are wrong together with others: links in a cycle, two places of an entity, two values of an attribute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.attribute_rows import two_values
from privtab.state.checker import Checker
from privtab.state.links import LINK_COLUMNS, invalid_links
from privtab.state.located import wrong_places
from privtab.state.names import RowProblem, SelectedRows
from privtab.state.nodes import ENTITIES, State


def conflicts(program: Program, state: State, table: str) -> dict[int, RowProblem]:
    """The rows of a table that are wrong together with others of it, by number, and why.

    For example:

        conflicts(program, state, "memberships")  # {0: RowProblem("S186", …)}
    """
    if table == ENTITIES:
        rows = list(state.texts(ENTITIES, "entity", "parent"))
        return wrong_places(vocabulary(program), rows) if program.flat else {}
    if table == "attributes":
        return two_values(program, state)
    found: dict[int, RowProblem] = {}
    for kind in program.semantics.hierarchy:
        linked, member, container, prefix = LINK_COLUMNS[kind]
        if linked == table:
            members = state.column(table, member)
            numbers = members.where(name for name in members.names if name.startswith(prefix))
            links = [(m, f"{prefix}{c}") for m, c in state.texts(table, member, container, rows=numbers)]
            problems = invalid_links(kind, links)
            found |= {row: problems[link] for row, link in zip(numbers, links, strict=True) if link in problems}
    return found


def without_conflicts(checker: Checker, state: State, *tables: str) -> State:
    """The state without the rows of some tables that are wrong together with others, after reporting them."""
    for table in tables:
        wrong = conflicts(checker.program, state, table)
        if not wrong:
            continue
        rows = checker.valid_rows[table]
        for number, problem in wrong.items():
            checker.error(rows[number], problem)
        remaining = [number for number in range(len(rows)) if number not in wrong]
        checker.valid_rows[table] = SelectedRows(rows, remaining)
        windows = dict(state.windows)
        if table in windows:
            windows[table] = [windows[table][row] for row in remaining]
        some: dict[str, Any] = {table: state.table(table).some(remaining)}
        state = replace(state, windows=windows, **some)
    return state
