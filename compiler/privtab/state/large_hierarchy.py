"""As `hierarchy`, for large tables: the rows that follow, by columns. Needs numpy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from privtab.arrow import Codes, Lists
from privtab.state.chains import GROUP, ROLE, RoleLimits, TransitiveContainers, check_size
from privtab.state.coded import CodedColumn, appended
from privtab.state.nodes import State
from privtab.state.rows import ColumnRows


def more_memberships(state: State, reach: TransitiveContainers[Any]) -> ColumnRows:
    """The memberships, and those that follow from groups in groups."""
    columns = _columns(state, "memberships", ("user", "group"))
    groups = columns["group"]
    above = [[name.removeprefix(GROUP) for name, _ in reach.of(f"{GROUP}{group}")] for group in groups.names]
    rows, found = _spread(groups.codes, above)
    return _longer("memberships", columns, rows, {"group": found})


def more_assignments(state: State, reach: TransitiveContainers[RoleLimits]) -> ColumnRows:
    """The assignments, and those that follow from roles held by roles."""
    columns = _columns(state, "assignments", ("principal", "role", "scope"))
    roles, scopes = columns["role"], columns["scope"]
    # Only the rows with roles that hold others: a state may have as many scopes as rows.
    holding = np.array([bool(reach.of(f"{ROLE}{role}")) for role in roles.names], np.bool_)
    some = np.flatnonzero(holding[roles.codes]) if len(holding) else np.zeros(0, np.int64)
    size = len(scopes.array) + 1
    once, which = np.unique(roles.codes[some] * size + scopes.codes[some] + 1, return_inverse=True)
    pair_lists: list[list[tuple[str, str | None]]] = []
    for at in once.tolist():
        own = None if at % size == 0 else scopes.names[at % size - 1]
        pairs: dict[tuple[str, str | None], None] = {}
        for role, limits in reach.through(f"{ROLE}{roles.names[at // size]}", RoleLimits(own)):
            pairs[role.removeprefix(ROLE), limits.scope] = None
        pair_lists.append(list(pairs))
    rows, found_roles = _spread(which, [[role for role, _ in pairs] for pairs in pair_lists])
    _, found_scopes = _spread(which, [[scope for _, scope in pairs] for pairs in pair_lists])
    return _longer("assignments", columns, some[rows], {"role": found_roles, "scope": found_scopes})


def _columns(state: State, table: str, names: Iterable[str]) -> dict[str, CodedColumn]:
    columns: dict[str, CodedColumn] = getattr(state, table).columns
    return {name: columns[name] for name in names}


def _spread(which: Codes, values: list[list[Any]]) -> tuple[Codes, CodedColumn]:
    """For each row all values of its list: the number of the row, and the value. `which`: the number of each row's list."""
    counts = np.array([len(values_of_row) for values_of_row in values], np.int64)
    check_size(int(counts[which].sum()) if len(which) else 0)
    owners = np.repeat(np.arange(len(values)), counts)
    column = CodedColumn.of_texts(chain.from_iterable(values))
    rows, codes = Lists(owners, column.codes, len(values)).values_of(which)
    return rows, CodedColumn(codes, column.array)


def _longer(table: str, columns: dict[str, CodedColumn], rows: Codes, found: dict[str, CodedColumn]) -> ColumnRows:
    """The rows of a table, and some of them again with other texts in some columns."""
    more = {name: CodedColumn(own.codes[rows], own.array) for name, own in columns.items()} | found
    return ColumnRows(table, {name: appended(own, more[name]) for name, own in columns.items()})
