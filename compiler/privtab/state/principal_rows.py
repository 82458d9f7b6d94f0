"""Principals in rows and in the index: which one a name means, as one text, within a scope, and which rows go with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from privtab.base.errors import InvalidRequest
from privtab.base.moments import ALWAYS, Window
from privtab.base.names import SCOPED, encode_name
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.names import StateNames, UsedParts
from privtab.state.nodes import State


def types_of_kind(program: Program, kind: str) -> list[str]:
    """The types of entities that are principals of a kind."""
    return [type_ for type_, entity in program.entities.items() if entity.principal == kind]


def principal_entity(program: Program, kind: str, name: str) -> Entity | None:
    """The role or the group whose whole path is a name in a row; None for a name that is of no place, or may be of several.

    In `role: m/analyst`, the path says that the role is of `m`. `analyst` alone refers to the roles of this name in all places,
    unless roles have no path. Users are the same everywhere.

        principal_entity(program, "role", "m/analyst")  # Entity("role", "m/analyst")
    """
    shapes = vocabulary(program).shapes
    types = types_of_kind(program, kind) if kind != "user" else []
    inner = [type_ for type_ in types if shapes[type_].written.depth > 1]
    outer = [type_ for type_ in types if type_ not in inner and not (inner and "/" in name)]
    entities = [*(Entity(type_, name) for type_ in inner), *(Entity(type_, encode_name(name)) for type_ in outer)]
    found = [entity for entity in entities if _is_path(program, entity)]
    return found[0] if len(found) == 1 else None


def _is_path(program: Program, entity: Entity) -> bool:
    try:
        vocabulary(program).check_path(entity)
    except InvalidRequest:
        return False
    return True


SEPARATOR = "\n"
"""Between the principals of a user. One string for all of them takes a third less of OPA's memory than a list, and no name
contains a line break (`names.py` refuses it).
"""


def scoped_principal(role: str, scope: str | None) -> str:
    """The principal for a role (`role:…`) within a scope (a key), or without one. JSON, so that no name can imitate another.

    >>> scoped_principal("role:analyst", "schema:m/s")
    'scoped:["schema:m/s","role:analyst"]'
    """
    return role if scope is None else SCOPED + json.dumps([scope, role], ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1 << 16)
def held_role(principal: str) -> tuple[str, str | None]:
    """The name of the role for which a principal stands, and the scope if it is held within one."""
    scope, role = json.loads(principal.removeprefix(SCOPED)) if principal.startswith(SCOPED) else (None, principal)
    return role.removeprefix("role:"), scope


class HeldRoles:
    """The principals that rows of `assignments` give: a role, or within a scope a principal of its own, as far as something depends on it."""

    def __init__(self, program: Program, state: State) -> None:
        self.used = UsedParts.of(program)
        self._declared = {f"role:{role.name}" for role in program.roles.values()}
        self.grantees = state.distinct(("grants", "grantee"), ("owners", "owner"))
        """The principals that grants and owners name."""
        self.named_themselves = {principal for principal in self.grantees if not principal.startswith("role:")}
        """Those of them that are users or groups."""
        self.within: dict[str, list[str]] = {}
        """The role and the scope of each principal that stands for both."""

    def principal(self, name: str, scope: str | None) -> str | None:
        """The principal of a role, within a scope or everywhere; None if nothing depends on it."""
        role = f"role:{name}"
        principal = scoped_principal(role, scope)
        if scope is not None:
            self.within[principal] = [role, scope]
        return principal if self.used.holds or role in self.grantees or role in self._declared else None

    def is_declared(self, name: str) -> bool:
        """Return whether the policy declares a role, so that it counts by its name within the scopes for which it is held."""
        return f"role:{name}" in self._declared


ScopedEntries: TypeAlias = dict[tuple[str, str, str, str], dict[str, list[Window]]]
"""Effect, privilege, entity and principal → the entities that the grants name, each with the windows."""


def scoped_entries(program: Program, state: State, keys: Callable[[Entity], list[str]]) -> ScopedEntries:
    """The rights that roles hold within the scopes for which they are assigned; `keys`: the keys on the path of an entity."""
    scopes = _scopes_of_roles(state)
    names = StateNames(program)
    paths: dict[str, list[str]] = {}
    below = _scopes_below(keys, scopes) if program.inherited else {}
    found: ScopedEntries = {}
    rows = state.column("grants", "grantee").where(scopes) if scopes else []
    windows = state.windows.get("grants")
    texts = state.texts("grants", "grantee", "effect", "privilege", "entity", rows=rows) if rows else ()
    for row, (grantee, effect, name, key) in zip(rows, texts, strict=True):
        path = paths.get(key)
        if path is None:
            path = paths[key] = keys(Entity.parse(key))
        privileges = names.privileges_of(name, key.partition(":")[0], effect)
        places = [(key, scope, privileges) for scope in path if scope in scopes[grantee]]
        if scopes_below := below.get((grantee, key)):
            inherited = tuple(filter(program.inherits, privileges))
            places += [(scope, scope, inherited) for scope in scopes_below]
        for place, scope, held in places:
            principal = scoped_principal(grantee, scope)
            for privilege in held:
                origins = found.setdefault((effect, privilege, place, principal), {})
                origins.setdefault(key, []).append(ALWAYS if windows is None else windows[row])
    return found


def _scopes_of_roles(state: State) -> dict[str, dict[str, Entity]]:
    """For each role (`role:…`), the scopes for which it is assigned, by key."""
    found: dict[str, dict[str, Entity]] = {}
    if state.column("assignments", "scope").names:
        for role, scope in state.texts("assignments", "role", "scope"):
            if scope is not None:
                found.setdefault(f"role:{role}", {})[scope] = Entity.parse(scope)
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
