"""Principals in the index of a state: a user's as one text, and those that stand for a role within a scope."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
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
    program: Program, rows: Iterable[tuple[Any, ...]], scopes: Mapping[str, Mapping[str, Entity]]
) -> dict[tuple[Effect, str, str, str], set[str]]:
    """What roles hold within scopes: effect, privilege, entity and principal → the entities that the grants name.

    `rows`: grantee, effect, privilege and entity of the grants to roles in `scopes`.
    """
    names = StateNames(program)
    inherits = program.semantics.inheritance == "down"
    keys = vocabulary(program).keys
    found: dict[tuple[Effect, str, str, str], set[str]] = {}
    for grantee, effect, name, key in rows:
        for privilege in names.given(name, key.partition(":")[0], effect):
            for scope_key, scope in scopes[grantee].items():
                principal = scoped_principal(grantee, scope_key)
                if scope_key in keys(Entity.parse(key)):
                    found.setdefault((effect, privilege, key, principal), set()).add(key)
                elif inherits and key in keys(scope):
                    found.setdefault((effect, privilege, scope_key, principal), set()).add(key)
    return found
