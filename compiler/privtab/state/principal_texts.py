"""Principals in the index of a state: a user's as one text, and those that stand for a role within a scope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.names import SCOPED
from privtab.request import Entity
from privtab.state.names import StateNames
from privtab.state.nodes import Effect, State

SEPARATOR = "\n"
"""Between the principals of a user. One string for all of them takes a third less of OPA's memory than a list, and no name
contains a line break (`names.py` refuses it).
"""


def scoped_principal(role: str, scope: str) -> str:
    """The principal for a role (`role:…`) within a scope (a key). JSON, so that no name can imitate another."""
    return SCOPED + json.dumps([scope, role], ensure_ascii=False, separators=(",", ":"))


def scopes_of_roles(state: State) -> dict[str, dict[str, Entity]]:
    """For each role (`role:…`), the scopes for which it is assigned, by key."""
    found: dict[str, dict[str, Entity]] = {}
    if state.column("assignments", "scope").names:
        for role, scope in state.texts("assignments", "role", "scope"):
            if scope is not None:
                found.setdefault(f"role:{role}", {})[scope] = Entity.parse(scope)
    return found


def scoped_entries(
    program: Program,
    rows: Iterable[tuple[Any, ...]],
    scopes: Mapping[str, Mapping[str, Entity]],
    keys: Callable[[Entity], list[str]] | None = None,
) -> dict[tuple[Effect, str, str, str], set[str]]:
    """What roles hold within scopes: effect, privilege, entity and principal → the entities that the grants name.

    `rows`: grantee, effect, privilege and entity of the grants to roles in `scopes`. `keys`: the keys on the path of an entity,
    if its id alone does not tell.
    """
    names = StateNames(program)
    keys = keys or vocabulary(program).keys
    paths: dict[str, list[str]] = {}
    below = _scopes_below(keys, scopes) if program.semantics.inheritance == "down" else {}
    found: dict[tuple[Effect, str, str, str], set[str]] = {}
    for grantee, effect, name, key in rows:
        path = paths.get(key)
        if path is None:
            path = paths[key] = keys(Entity.parse(key))
        places = [(key, scope) for scope in path if scope in scopes[grantee]]
        places += [(scope, scope) for scope in below.get((grantee, key), ())]
        for place, scope in places:
            principal = scoped_principal(grantee, scope)
            for privilege in names.privileges_of(name, key.partition(":")[0], effect):
                found.setdefault((effect, privilege, place, principal), set()).add(key)
    return found


def _scopes_below(
    keys: Callable[[Entity], list[str]], scopes: Mapping[str, Mapping[str, Entity]]
) -> dict[tuple[str, str], list[str]]:
    """For each role and each key, the scopes of the role that lie below that."""
    found: dict[tuple[str, str], list[str]] = {}
    for role, own in scopes.items():
        for key, scope in own.items():
            for above in keys(scope):
                if above != key:
                    found.setdefault((role, above), []).append(key)
    return found
