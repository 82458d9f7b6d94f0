"""Groups in groups and roles held by roles: the rows that follow from those of a state (docs/decisions/0222).

`closed` appends these rows. So whatever looks one row far finds all that a principal holds: the reference, every index, the analyses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from privtab.ir.nodes import Program
from privtab.ir.semantics import HierarchyKind
from privtab.moments import ALWAYS, Window
from privtab.request import Entity
from privtab.state.chains import (
    GROUP,
    ROLE,
    RoleLimits,
    TransitiveContainers,
    check_size,
    containers,
    joined,
    roles_from,
)
from privtab.state.links import COLUMNS
from privtab.state.located import locations
from privtab.state.nodes import State
from privtab.state.raw import COLUMNS as TABLE_COLUMNS


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
    for kind, table in (("groups", "memberships"), ("roles", "assignments")):
        if kind in program.semantics.hierarchy:
            _, _, container, prefix = COLUMNS[kind]
            follow = following(table, _links(state, kind), locations(program, state).keys)
            column = state.column(table, container)
            rows = column.where(name for name in column.names if follow.reach.of(f"{prefix}{name}"))
            state = _longer(state, table, dict.fromkeys(follow(_texts(state, table, rows)))) if rows else state
    return state


Texts: TypeAlias = tuple[str | None, ...]
"""The cells of a row of `memberships` or `assignments`, but for its window; an entity is `type:path`."""


def following(table: str, links: Iterable[tuple[Texts, Window]], keys: Callable[[Entity], list[str]]) -> Following:
    """What follows from rows of `memberships` or `assignments`, given those whose member is a group, or a role.

    `keys`: the keys on the path of an entity.
    """
    if table == "memberships":
        contained = ((str(member), f"{GROUP}{group}", window) for (member, group), window in links)
        return Following(table, containers(contained, joined))
    held = ((str(p), str(role), RoleLimits(scope, window)) for (p, role, scope), window in links)
    return Following(table, roles_from(held, keys))


class Following:
    """The rows that follow from rows of a table, each with its window."""

    def __init__(self, table: str, reach: TransitiveContainers[Any]) -> None:
        self.reach = reach
        self._derive = self._memberships if table == "memberships" else self._assignments

    def __call__(self, rows: Iterable[tuple[Texts, Window]]) -> Iterator[tuple[Texts, Window]]:
        """The rows that follow. Raises UsageError if they are too many."""
        count = 0
        for cells, window in rows:
            for found in self._derive(cells, window):
                yield found
                count += 1
            check_size(count)

    def _memberships(self, cells: Texts, window: Window) -> Iterator[tuple[Texts, Window]]:
        user, group = cells
        for above, both in self.reach.through(f"{GROUP}{group}", window):
            yield (user, above.removeprefix(GROUP)), both

    def _assignments(self, cells: Texts, window: Window) -> Iterator[tuple[Texts, Window]]:
        principal, outer, scope = cells
        for role, limits in self.reach.through(f"{ROLE}{outer}", RoleLimits(scope, window)):
            yield (principal, role.removeprefix(ROLE), limits.scope), limits.window


def _links(state: State, kind: HierarchyKind) -> Iterator[tuple[Texts, Window]]:
    """The rows between two groups, or two roles."""
    table, member, _, prefix = COLUMNS[kind]
    members = state.column(table, member)
    rows = _texts(state, table, members.where(name for name in members.names if name.startswith(prefix)))
    return ((cells, window) for cells, window in rows if window.begin < window.end)


def _texts(state: State, table: str, rows: Sequence[int]) -> Iterator[tuple[Texts, Window]]:
    windows = state.windows_of(table)
    columns = (state.column(table, name).take(rows) for name in TABLE_COLUMNS[table].names)
    return zip(zip(*columns, strict=True), (windows[row] for row in rows), strict=True)


def _longer(state: State, table: str, rows: Mapping[tuple[Texts, Window], None]) -> State:
    """The state with more rows in a table, each with its window; without those that it has, unless these are many."""
    own = state.table(table)
    known = () if own.coded else set(_texts(state, table, range(len(own))))
    new = [row for row in rows if row not in known]
    longer: dict[str, Any] = {table: own.with_more([cells for cells, _ in new])}
    windows = dict(state.windows)
    if table in windows or any(window != ALWAYS for _, window in new):
        windows[table] = (*state.windows_of(table), *(window for _, window in new))
    return replace(state, windows=windows, **longer)
