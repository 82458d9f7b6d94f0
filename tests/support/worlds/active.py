"""Requests that name the active roles of their callers: none, some, all, and now and then one that the caller may not hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from privtab.base.request import Request
from privtab.ir.nodes import Program
from privtab.state.nodes import Assignment, Effect, Grant, State
from worlds.names import entity, names, scope_of


def declared(rnd: random.Random | None) -> list[str]:
    """What to write in the semantics."""
    return [] if rnd is None else [f"active_roles: {rnd.choice(['request', 'request', 'request_grants'])}"]


def with_more_roles(program: Program, state: State, seed: int) -> State:
    """A state in which most users hold most roles, and roles are granted and own more: else there is nothing to narrow."""
    rnd = random.Random(f"more roles {seed}")
    known = names(program)
    assignments, grants, owners = list(state.assignments), list(state.grants), list(state.owners)
    may_own = program.semantics.owner is not None and "role" in program.semantics.owner.kinds
    for principal in (*(f"user:{user}" for user in known.users), *(f"group:{group}" for group in known.groups)):
        for role in known.roles:
            if rnd.random() < 0.6:
                scope = scope_of(program, role, rnd, [None, None, None, *program.entities])
                assignments.append(Assignment(principal=principal, role=role, scope=scope))
    for role in known.roles:
        for privilege in program.privileges.values():
            if privilege.on and rnd.random() < 0.5:
                target = entity(program, rnd.choice([privilege.on[0], *privilege.on]), rnd)
                denied = program.semantics.deny == "overrides" and rnd.random() < 0.15
                effect: Effect = "deny" if denied else "allow"
                grants.append(Grant(grantee=f"role:{role}", effect=effect, privilege=privilege.name, entity=target))
        owned = [type_ for type_ in program.entities if may_own and rnd.random() < 0.5]
        owners += [(entity(program, type_, rnd), f"role:{role}") for type_ in owned]
    return replace(
        state,
        assignments=tuple(dict.fromkeys(assignments)),
        grants=tuple(dict.fromkeys(grants)),
        owners=tuple(dict.fromkeys(owners)),
    )


def narrowed(program: Program, requests: Sequence[Request], seed: int) -> list[Request]:
    """The requests, most of them with active roles."""
    rnd = random.Random(f"active {seed}")
    roles = names(program).roles
    found = []
    for request in requests:
        share = rnd.choice([0.0, 0.15, 0.3, 0.3, 1.0])
        active = tuple(role for role in roles if rnd.random() < share)
        if rnd.random() < 0.05:
            active += ("nobody holds this",)
        found.append(request if rnd.random() < 0.3 else replace(request, active_roles=active))
    return found
