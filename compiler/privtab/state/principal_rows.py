"""The rows of a state about a principal that is itself an entity: what goes when it is removed."""

from __future__ import annotations

from privtab.ir.nodes import OwnerKind, Program
from privtab.names import encode_name
from privtab.request import Entity
from privtab.state.located import locations
from privtab.state.nodes import State


def about_principal(state: State, table: str, principal: Entity, program: Program) -> State:
    """The rows of one table about a principal that is itself an entity, as far as they concern what contains it.

    Rows that name no entity (memberships, assignments without a scope) always count.
    """
    kind = program.entities[principal.type].principal
    own_name = principal.names[-1]
    where = locations(program, state)
    keys = where.find(principal)
    if keys is None:
        return State()  # nobody may do anything with what lies nowhere
    container = keys[-2] if len(keys) > 1 else None

    def is_name(name: str, name_kind: OwnerKind | None = kind) -> bool:
        return name_kind == kind and encode_name(name) == own_name

    def is_principal(text: str) -> bool:
        prefix, _, name = text.partition(":")
        return prefix == kind and is_name(name)

    def inside(entity: Entity | None) -> bool:
        return entity is None or container is None or container in (where.find(entity) or ())

    match table:
        case "members":
            return State(members=tuple(row for row in state.members if is_name(row[0], "user") and inside(row[1])))
        case "memberships":
            rows = tuple(row for row in state.memberships if is_name(row[0], "user") or is_name(row[1], "group"))
            return State(memberships=rows)
        case "assignments":
            about = (row for row in state.assignments if is_principal(row.principal) or is_name(row.role, "role"))
            return State(assignments=tuple(row for row in about if inside(row.scope)))
        case "grants":
            return State(grants=tuple(row for row in state.grants if is_principal(row.grantee) and inside(row.entity)))
        case "owners":
            return State(owners=tuple(row for row in state.owners if is_principal(row[1]) and inside(row[0])))
        case _:
            raise AssertionError(f"`{table}` is not one of PRINCIPAL_TABLES")
