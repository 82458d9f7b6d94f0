"""Groups in groups and roles held by roles: the rows that follow from those of a state (docs/decisions/0222).

`closed` appends these rows. So whatever looks one row far finds all that a principal holds: the reference, every index, the analyses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from privtab.ir.nodes import Program
from privtab.moments import ALWAYS, Window
from privtab.request import Entity
from privtab.state.chains import GROUP, ROLE, RoleLimits, TransitiveContainers, check_size, joined, roles_from
from privtab.state.located import locations
from privtab.state.nodes import Assignment, ExtendedRows, State


def closed(program: Program, state: State) -> State:
    """The state with the rows that follow from groups in groups and roles held by roles, after its own rows.

    The state itself for a policy without a hierarchy. Raises UsageError if too many rows follow.
    """
    kinds = program.semantics.hierarchy
    if not kinds:
        return state
    key = ("closed", kinds, tuple(program.entities.values()))
    found: State | None = state.derived.get(key)
    if found is None:
        found = state.derived[key] = _closed(program, state)
        found.derived[key] = found
    return found


def _closed(program: Program, state: State) -> State:
    kinds = program.semantics.hierarchy
    if "groups" in kinds:
        state = _with_memberships(state)
    return _with_assignments(program, state) if "roles" in kinds else state


def group_reach(state: State) -> TransitiveContainers[Window]:
    """The groups that contain a group (`group:…`), by name."""
    users = state.column("memberships", "user")
    rows = users.where(name for name in users.names if name.startswith(GROUP))
    windows = state.windows_of("memberships")
    links: dict[str, list[tuple[str, Window]]] = defaultdict(list)
    columns = (state.column("memberships", name).take(rows) for name in ("user", "group"))
    for row, user, group in zip(rows, *columns, strict=True):
        if windows[row].begin < windows[row].end:
            links[str(user)].append((f"{GROUP}{group}", windows[row]))
    return TransitiveContainers(links, joined)


def role_reach(program: Program, state: State) -> TransitiveContainers[RoleLimits]:
    """The roles that a role (`role:…`) holds."""
    principals = state.column("assignments", "principal")
    rows = principals.where(name for name in principals.names if name.startswith(ROLE))
    windows = state.windows_of("assignments")
    columns = (state.column("assignments", name).take(rows) for name in ("principal", "role", "scope"))
    links = [
        (str(holder), str(role), RoleLimits(scope, windows[row]))
        for row, holder, role, scope in zip(rows, *columns, strict=True)
        if windows[row].begin < windows[row].end
    ]
    return roles_from(links, locations(program, state).keys)


def _with_memberships(state: State) -> State:
    reach = group_reach(state)
    if not reach.links:
        return state
    if not state.windows and hasattr(state.memberships, "columns"):
        from privtab.state.large_hierarchy import more_memberships

        return replace(state, memberships=more_memberships(state, reach))
    found: dict[tuple[Any, Window], None] = {}
    for (user, group), window in zip(state.memberships, state.windows_of("memberships"), strict=True):
        for above, both in reach.through(f"{GROUP}{group}", window):
            found[(user, above.removeprefix(GROUP)), both] = None
        check_size(len(found))
    return _longer(state, "memberships", found)


def _with_assignments(program: Program, state: State) -> State:
    reach = role_reach(program, state)
    if not reach.links:
        return state
    if not state.windows and hasattr(state.assignments, "columns"):
        from privtab.state.large_hierarchy import more_assignments

        return replace(state, assignments=more_assignments(state, reach))
    entities: dict[str, Entity] = {}
    found: dict[tuple[Any, Window], None] = {}
    for row, window in zip(state.assignments, state.windows_of("assignments"), strict=True):
        own = RoleLimits(None if row.scope is None else str(row.scope), window)
        for role, limits in reach.through(f"{ROLE}{row.role}", own):
            entity = None if limits.scope is None else entities.setdefault(limits.scope, Entity.parse(limits.scope))
            derived = Assignment(principal=row.principal, role=role.removeprefix(ROLE), scope=entity)
            found[derived, limits.window] = None
        check_size(len(found))
    return _longer(state, "assignments", found)


def _longer(state: State, table: str, rows: Mapping[tuple[Any, Window], None]) -> State:
    """The state with more rows in a table, each with its window; without those that it has."""
    own = set(zip(getattr(state, table), state.windows_of(table), strict=True))
    new = [row for row in rows if row not in own]
    longer: dict[str, Any] = {table: ExtendedRows(getattr(state, table), tuple(value for value, _ in new))}
    windows = dict(state.windows)
    if table in windows or any(window != ALWAYS for _, window in new):
        windows[table] = (*state.windows_of(table), *(window for _, window in new))
    return replace(state, windows=windows, **longer)
