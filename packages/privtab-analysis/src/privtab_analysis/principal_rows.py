"""The rows about a principal that is an entity, and the entity that contains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privtab.base import Entity, Locations, last_name
from privtab.ir import Program
from privtab.state import State, locations, principal_entity


def place_of(program: Program, where: Locations, entity: Entity) -> str | None:
    """The key of the nearest entity with a name of its own that contains a principal; None for one that lies in none."""
    above = (where.find(entity) or ())[:-1]
    return next((key for key in reversed(above) if not program.entities[key.partition(":")[0]].single), None)


def may_name_entity(program: Program, kind: str, name: str, entity: Entity) -> bool:
    """Return whether a name in a row is that of an entity, or does not say of which entity with this last name.

    For example:

        may_name_entity(program, "role", "analyst", Entity("role", "m/analyst"))
    """
    if program.entities[entity.type].principal != kind:
        return False
    named = principal_entity(program, kind, name)
    return name == last_name(entity.id) if named is None else named == entity


def about_principal(state: State, table: str, principal: Entity, program: Program) -> State:
    """The rows of one table about a principal that is itself an entity, as far as they concern its containers.

    Rows that name no entity (memberships, assignments without a scope) count, unless they name a role or a group of another place.
    """
    where = locations(program, state)
    if where.find(principal) is None:
        return State()  # nobody may do anything with what lies nowhere
    container = place_of(program, where, principal)

    def is_name(name: str, kind: str) -> bool:
        return may_name_entity(program, kind, name, principal)

    def is_principal(text: str) -> bool:
        kind, _, name = text.partition(":")
        return may_name_entity(program, kind, name, principal)

    def is_member(text: str) -> bool:
        return is_principal(text) if text.startswith("group:") else is_name(text, "user")

    def inside(entity: Entity | str | None) -> bool:
        entity = Entity.parse(entity) if isinstance(entity, str) else entity
        return entity is None or container is None or container in (where.find(entity) or ())

    def here(kind: str, name: str) -> bool:
        return inside(principal_entity(program, kind, name))

    def is_about_it(cells: Sequence[Any]) -> bool:
        match table, cells:
            case "members", (user, of):
                return is_name(user, "user") and inside(of)
            case "memberships", (user, group):
                return (is_member(user) or is_name(group, "group")) and here("group", group)
            case "assignments", (holder, role, scope):
                return (is_principal(holder) or is_name(role, "role")) and inside(scope) and here("role", role)
            case "grants", (grantee, _, _, entity):
                return is_principal(grantee) and inside(entity)
            case "owners", (entity, owner):
                return is_principal(owner) and inside(entity)
            case _:
                raise AssertionError(f"`{table}` is not one of PRINCIPAL_TABLES")

    return state.some({table: [row for row, cells in enumerate(state.table(table).cells()) if is_about_it(cells)]})
