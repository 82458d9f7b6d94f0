"""Rows of a state as they could have been written, from rows that name each single privilege.

An index and Spark's tables hold every privilege that a row gives. Read again as rows, what a privilege implies would be expanded a
second time, and implication is one step. So the rows that others give are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from privtab.base.moments import ALWAYS, Window
from privtab.ir.names import privilege_names
from privtab.ir.nodes import Program
from privtab.state.nodes import State


def as_written(program: Program, state: State) -> State:
    """A state whose index is the one that holds exactly the privileges of these rows, each for its own window.

    A row that allows a privilege is kept where everything that the privilege implies there is allowed as well: the row that gave
    it is among those, and none of them gives more.

        validate(program, from_tables(as_written(program, state), "the state"))
    """
    if not program.implies:
        return state
    names = privilege_names(program)
    windows = state.windows_of("grants")
    windows_of: dict[tuple[str, str], dict[str, list[Window]]] = defaultdict(lambda: defaultdict(list))
    for grant, window in zip(state.grants, windows, strict=True):
        if grant.effect == "allow":
            windows_of[grant.grantee, str(grant.entity)][grant.privilege].append(window)
    rows, kept_windows = [], []
    for grant, window in zip(state.grants, windows, strict=True):
        if grant.effect == "deny":
            rows.append(grant)
            kept_windows.append(window)
            continue
        others = windows_of[grant.grantee, str(grant.entity)]
        granted = names.privileges_of(grant.privilege, grant.entity.type, "allow")
        for part in _parts(window, [other for listed in others.values() for other in listed]):
            if all(any(other.covers(part) for other in others.get(p, ())) for p in granted):
                rows.append(grant)
                kept_windows.append(part)
    timed = (
        {**state.windows, "grants": tuple(kept_windows)}
        if any(window != ALWAYS for window in kept_windows)
        else state.windows
    )
    return replace(state, grants=tuple(rows), windows=timed)


def _parts(window: Window, others: list[Window]) -> list[Window]:
    """A window, divided where another one begins or ends."""
    edges = sorted({window.begin, window.end, *(e for o in others for e in o if window.begin < e < window.end)})
    return [Window(*pair) for pair in pairwise(edges)]
