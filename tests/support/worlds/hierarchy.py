"""Groups in groups and roles held by roles, without cycles, and rows about those that contain others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from privtab.ir.nodes import Program
from privtab.state.nodes import Assignment, Effect, Grant, State
from worlds.names import entity, names, scope_of


def declared(rnd: random.Random | None) -> list[str]:
    """What to write in the semantics."""
    if rnd is None:
        return []
    return [f"hierarchy: [{rnd.choice(['groups', 'roles', 'groups, roles', 'groups, roles'])}]"]


def nested(program: Program, state: State, seed: int) -> State:
    """A state with more rows: those of chains."""
    rnd = random.Random(f"hierarchy {seed}")
    known = names(program)
    groups, roles = [*known.groups, "everyone"], [*known.roles, "chief"]
    rnd.shuffle(groups)
    rnd.shuffle(roles)
    memberships, assignments, grants = list(state.memberships), list(state.assignments), list(state.grants)

    def assigned(principal: str, role: str) -> None:
        scope = scope_of(program, role, rnd, [None, None, *program.entities])
        assignments.append(Assignment(principal=principal, role=role, scope=scope))

    def pairs(all_names: Sequence[str]) -> list[tuple[str, str]]:
        found = [
            (first, second) for at, first in enumerate(all_names) for second in all_names[at + 1 :] if first != second
        ]
        return [pair for pair in found if rnd.random() < 0.45]

    if "groups" in program.semantics.hierarchy:
        memberships += [(f"group:{inner}", outer) for inner, outer in pairs(groups)]
    if "roles" in program.semantics.hierarchy:
        for inner_role, outer_role in pairs(roles):
            assigned(f"role:{inner_role}", outer_role)
    for principal in ("group:everyone", "role:chief"):
        for privilege in program.privileges.values():
            if privilege.on and rnd.random() < 0.4:
                target = entity(program, rnd.choice(privilege.on), rnd)
                denied = program.semantics.deny == "overrides" and rnd.random() < 0.25
                effect: Effect = "deny" if denied else "allow"
                grants.append(Grant(grantee=principal, effect=effect, privilege=privilege.name, entity=target))
    for holder in (f"user:{rnd.choice(known.users)}", f"group:{rnd.choice(groups)}"):
        assigned(holder, rnd.choice(roles))
    return replace(
        state,
        memberships=tuple(dict.fromkeys(memberships)),
        assignments=tuple(dict.fromkeys(assignments)),
        grants=tuple(dict.fromkeys(grants)),
    )
