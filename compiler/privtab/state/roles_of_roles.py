"""The roles that roles hold: they are active with them. A part of the index if a policy lets requests narrow roles that hold roles.

    {"brought": {principal of a role: {principal of a role that it holds: true}}}

The part is called `brought` in bundles. A role within a scope is a principal of its own (`principal_texts.py`). In a state with
windows, the part is split as others are (`windowed.py`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from privtab.ir.nodes import Program
from privtab.moments import Window
from privtab.state.chains import ROLE, ScopeOverlap
from privtab.state.hierarchy import closed
from privtab.state.located import locations
from privtab.state.names import uses
from privtab.state.nodes import State
from privtab.state.principal_rows import scoped_principal
from privtab.state.windowed import split

PART = "brought"

RolesOfRoles: TypeAlias = dict[str, dict[str, list[Window]]]
"""Principal of a role → those of the roles that it holds, each with the windows in which it does; sorted."""


def part(program: Program, state: State) -> dict[str, Any]:
    """The part of the index of a state without windows; nothing if the policy has no use for it."""
    return {PART: parts(program, state)[0]} if uses(program).roles_of_roles else {}


def parts(program: Program, state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """What roles bring at any time, and what they bring for a time."""
    always: dict[str, Any] = {}
    timed: dict[str, Any] = {}
    for role, others in held_roles(program, state).items():
        lasting, later = split(others)
        if lasting:
            always[role] = dict.fromkeys(lasting, True)
        if later:
            timed[role] = later
    return always, timed


def held_roles(program: Program, state: State) -> RolesOfRoles:
    """The roles that each role holds which is assigned to a user or a group."""
    state = closed(program, state)
    role_links: dict[str, list[tuple[str, str | None, Window]]] = {}
    scopes: dict[str, set[str | None]] = {}
    rows = state.texts("assignments", "principal", "role", "scope")
    for (principal, name, scope), window in zip(rows, state.windows_of("assignments"), strict=True):
        if principal.startswith(ROLE):
            role_links.setdefault(principal, []).append((f"{ROLE}{name}", scope, window))
        else:
            scopes.setdefault(f"{ROLE}{name}", set()).add(scope)
    overlap = ScopeOverlap(locations(program, state).keys)
    found: RolesOfRoles = {}
    for role in role_links.keys() & scopes.keys():
        for scope in scopes[role]:
            for other, own, window in role_links[role]:
                common, both = overlap.both(scope, own)
                if common:
                    links = found.setdefault(_principal(role, scope), {})
                    links.setdefault(_principal(other, both), []).append(window)
    return {role: dict(sorted(found[role].items())) for role in sorted(found)}


def _principal(role: str, scope: str | None) -> str:
    return role if scope is None else scoped_principal(role, scope)
