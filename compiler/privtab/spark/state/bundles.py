"""The index of a state bundle → the rows of a state that decides the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.request import Entity
from privtab.state.nodes import Assignment, Effect, Grant, State


def from_index(document: Mapping[str, Any]) -> State:
    """The rows that an index was made from, as far as it tells them."""
    entities: dict[str, Entity] = {}

    def entity(key: str) -> Entity:
        found = entities.get(key)
        if found is None:
            found = entities[key] = Entity.parse(key)
        return found

    def grants(effect: Effect) -> list[Grant]:
        return [
            Grant(grantee=who, effect=effect, privilege=privilege, entity=entity(key))
            for privilege, keys in document[effect].items()
            for key, holders in keys.items()
            for who, entry in holders.items()
            if entry is True
        ]

    memberships: dict[tuple[str, str], None] = {}
    assignments: dict[Assignment, None] = {}
    people = [(f"user:{user}", listed) for user, listed in document["principals"].items()]
    people += [(f"group:{group}", listed) for group, listed in document["group_principals"].items()]
    for who, listed in people:
        for principal in listed.split("\n"):
            kind, _, name = principal.partition(":")
            if kind == "role":
                assignments[Assignment(principal=who, role=name)] = None
            elif principal in document["within"]:
                role, scope = document["within"][principal]
                assignments[Assignment(principal=who, role=role.partition(":")[2], scope=entity(scope))] = None
            elif kind == "group" and who.startswith("user:"):
                memberships[who.partition(":")[2], name] = None
    for kind, part in (("user", "scoped"), ("group", "group_scoped")):
        for name, scopes in document[part].items():
            for scope, roles in scopes.items():
                for role in roles:
                    held = Assignment(principal=f"{kind}:{name}", role=role.partition(":")[2], scope=entity(scope))
                    assignments[held] = None
    return State(
        members=tuple((user, entity(key)) for key, users in document["members"].items() for user in users),
        memberships=tuple(memberships),
        assignments=tuple(assignments),
        grants=(*grants("allow"), *grants("deny")),
        owners=tuple((entity(key), owner) for key, owners in document["owners"].items() for owner in owners),
        service_admins=tuple(document["service_admins"]),
    )
