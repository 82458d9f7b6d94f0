"""Random states of a policy, with and without windows on their rows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from privtab.base.moments import ALWAYS, FIRST, LAST, Window
from privtab.ir.names import privilege_names
from privtab.ir.nodes import Program
from privtab.state.nodes import Assignment, Grant, State
from worlds import active, attributes, hierarchy
from worlds import flat as placements
from worlds.names import entity, names, scope_of


def state(program: Program, seed: int) -> State:
    """A random valid state for a policy."""
    rnd = random.Random(seed)
    known = names(program)
    principals = [f"user:{u}" for u in known.users] + [f"group:{g}" for g in known.groups]
    grantees = [*principals, *(f"role:{r}" for r in (*known.roles, *known.roles))]
    grants = []
    named = [*program.privileges, *program.aliases, *program.sets]
    for _ in range(rnd.randint(0, 24)):
        name = rnd.choice(named)
        real = program.aliases[name].of if name in program.aliases else name
        members = program.sets.get(real, (real,))
        types = [t for t in program.entities if all(t in program.privileges[m].on for m in members)]
        if types:
            denied = program.semantics.deny == "overrides" and rnd.random() < 0.25
            target = entity(program, rnd.choice(types), rnd)
            grants.append(
                Grant(grantee=rnd.choice(grantees), effect="deny" if denied else "allow", privilege=name, entity=target)
            )
    assignments = []
    for _ in range(rnd.randint(0, 7)):
        role = rnd.choice(known.roles)
        scope = scope_of(program, role, rnd, [None, None, *program.entities])
        assignments.append(Assignment(principal=rnd.choice(principals), role=role, scope=scope))
    owner = program.semantics.owner
    owning = [p for p in grantees if owner is not None and p.partition(":")[0] in owner.kinds]
    flat = State(
        members=tuple(
            (u, entity(program, t, rnd)) for u in known.users for t in program.entities if rnd.random() < 0.4
        ),
        memberships=tuple((u, g) for u in known.users for g in known.groups if rnd.random() < 0.4),
        assignments=tuple(assignments),
        grants=tuple(grants),
        owners=tuple(
            (entity(program, rnd.choice(list(program.entities)), rnd), rnd.choice(owning))
            for _ in range(rnd.randint(0, 6) if owning else 0)
        ),
        service_admins=tuple(u for u in known.users if rnd.random() < 0.2),
    )
    found = hierarchy.nested(program, flat, seed) if program.semantics.hierarchy else flat
    found = active.with_more_roles(program, found, seed) if program.semantics.active_roles == "request" else found
    found = attributes.with_values(program, found, seed) if program.attributes else found
    # No row may name `any privilege`. It is drawn like the others, so that a seed gives the rows that it always gave.
    nameable = privilege_names(program).privileges
    found = replace(found, grants=tuple(grant for grant in found.grants if nameable(grant.privilege)))
    return placements.placed(program, found, seed) if program.flat else found


EPOCH = 1_772_323_200_000_000_000
"""A moment around which the windows of generated states lie: 2026-03-01T00:00:00Z."""


def timed(state: State, seed: int, *, now: int = EPOCH) -> State:
    """A state with windows on some rows: around `now`, past, future, empty, and several for the same row."""
    rnd = random.Random(f"windows {seed}")
    step = 3_600_000_000_000
    edges = [FIRST, LAST, *(now + number * step for number in range(-3, 4))]
    tables: dict[str, Any] = {}
    windows: dict[str, tuple[Window, ...]] = {}
    share = rnd.choice([0.1, 0.5, 0.9])
    for table in ("memberships", "assignments", "grants", "owners"):
        rows = [row for row in getattr(state, table) for _ in range(1 + (rnd.random() < 0.2))]
        row_windows = [Window(*rnd.choices(edges, k=2)) if rnd.random() < share else ALWAYS for _ in rows]
        # As after validation: a row says the same only once.
        pairs = list(dict.fromkeys(zip(rows, row_windows, strict=True)))
        tables[table] = tuple(row for row, _ in pairs)
        if any(window != ALWAYS for _, window in pairs):
            windows[table] = tuple(window for _, window in pairs)
    return replace(state, windows=windows, **tables)


def moments(state: State) -> list[int]:
    """The moments at which a state with windows changes, and those just before and after."""
    edges = {edge for windows in state.windows.values() for window in windows for edge in window}
    return sorted({moment for edge in edges - {FIRST, LAST} for moment in (edge - 1, edge, edge + 1)})
