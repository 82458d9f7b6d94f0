"""The same operation for Cedar: entities have sets of roles as attributes, and users are in their groups and roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workload import World, ancestors

TYPES = ("Metalake", "Catalog", "Schema", "Table")
SETS = {"USE_CATALOG": 1, "USE_SCHEMA": 2, "SELECT_TABLE": 3}
"""Each privilege, with the depth of the entity on which it is required."""


def policies() -> str:
    """One permit and one forbid, expanded over the path of a table."""

    def above(depth: int, attribute: str) -> list[str]:
        return [f"principal in resource{'.parent' * (3 - at)}.{attribute}" for at in range(depth + 1)]

    allowed = " && ".join(f"({' || '.join(above(depth, privilege))})" for privilege, depth in SETS.items())
    denied = " || ".join(part for name, depth in SETS.items() for part in above(depth, f"deny_{name}"))
    head = 'principal, action == Action::"SELECT_TABLE", resource'
    return f"permit({head}) when {{ {allowed} }};\nforbid({head}) when {{ {denied} }};\n"


def request(user: str, table: str) -> dict[str, Any]:
    """One request."""
    return {
        "principal": {"type": "User", "id": user},
        "action": {"type": "Action", "id": "SELECT_TABLE"},
        "resource": {"type": "Table", "id": table},
    }


def entities(world: World) -> list[dict[str, Any]]:
    """All users, groups and protected entities."""
    return list(_entities(world))


def _entities(world: World) -> Iterator[dict[str, Any]]:
    held: dict[tuple[str, str], list[str]] = {}
    for role, effect, privilege, path in world.grants:
        if privilege in SETS:
            held.setdefault((path, privilege if effect == "allow" else f"deny_{privilege}"), []).append(role)
    size = world.size
    tables = (
        f"m/c{c}/s{s}/t{t}" for c in range(size.catalogs) for s in range(size.schemas) for t in range(size.tables)
    )
    for path in dict.fromkeys(place for table in tables for place in ancestors(table)):
        depth = path.count("/")
        names = [name for privilege in SETS for name in (privilege, f"deny_{privilege}")]
        attributes: dict[str, Any] = {
            name: [_reference("Role", role) for role in held.get((path, name), ())] for name in names
        }
        if depth:
            attributes["parent"] = _reference(TYPES[depth - 1], path.rpartition("/")[0])
        yield {"uid": {"type": TYPES[depth], "id": path}, "attrs": attributes, "parents": []}
    for user, roles in world.roles_of.items():
        above = [("Group", group) for group in world.groups_of[user]] + [("Role", role) for role in roles]
        yield _principal("User", user, above)
    for group, roles in world.group_roles.items():
        yield _principal("Group", group, [("Role", role) for role in roles])


def _principal(type_: str, name: str, above: list[tuple[str, str]]) -> dict[str, Any]:
    return {"uid": {"type": type_, "id": name}, "attrs": {}, "parents": [{"type": t, "id": n} for t, n in above]}


def _reference(type_: str, name: str) -> dict[str, Any]:
    return {"__entity": {"type": type_, "id": name}}
