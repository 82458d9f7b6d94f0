"""What roles bring when they are active: the roles that they hold, part of the index if a policy lets requests narrow roles that hold roles.

    {"brought": {principal of a role: {principals of the roles that it holds: true}}}

A role within a scope is a principal of its own (`principal_texts.py`). A principal whose role is active brings these with it.
"""

from __future__ import annotations

from typing import Any

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.chains import ROLE, ScopeOverlap
from privtab.state.hierarchy import closed
from privtab.state.nodes import State
from privtab.state.principal_texts import scoped_principal
from privtab.state.uses import uses


def part(program: Program, state: State) -> dict[str, Any]:
    """The part of the index; nothing if the policy has no use for it."""
    if not uses(program).roles_of_roles:
        return {}
    held: dict[str, list[tuple[str, str | None]]] = {}
    scopes: dict[str, set[str | None]] = {}
    for principal, name, scope in closed(program, state).texts("assignments", "principal", "role", "scope"):
        if principal.startswith(ROLE):
            held.setdefault(principal, []).append((f"{ROLE}{name}", scope))
        else:
            scopes.setdefault(f"{ROLE}{name}", set()).add(scope)
    overlap = ScopeOverlap(vocabulary(program))
    found: dict[str, dict[str, bool]] = {}
    for role in sorted(held.keys() & scopes.keys()):
        for scope in scopes[role]:
            principals = set()
            for other, own in held[role]:
                common, both = overlap.both(scope, own)
                if common:
                    principals.add(_principal(other, both))
            if principals:
                found[_principal(role, scope)] = dict.fromkeys(sorted(principals), True)
    return {"brought": dict(sorted(found.items()))}


def _principal(role: str, scope: str | None) -> str:
    return role if scope is None else scoped_principal(role, scope)
