"""The operations that each role gives: the permissions of a user who holds the role alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import TypeAlias

from privtab.base import Entity
from privtab.ir import Member, Program, reached_atoms
from privtab.reference import Reference
from privtab.state import Assignment, Placement, State
from privtab_analysis.entitlements.universe import names, universe
from privtab_analysis.permissions import what_can
from privtab_testing.scenarios.callers import at_or_below

HOLDER = "holder"
"""The name of the users who hold one role each, followed by a number."""
Key: TypeAlias = tuple[str, str]
"""An operation: (entity type, operation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMatrix:
    """Roles by operations."""

    roles: tuple[str, ...]
    cells: Mapping[Key, tuple[str, ...]]
    """The permissions that each role gives, in the order of `roles`; empty for none."""
    about: str
    """The meaning of the cells, in a sentence."""


def default_roles(program: Program) -> RoleMatrix | None:
    """The roles that a policy declares, each asked about with a made-up entity of every type; None if it declares none."""
    if not program.roles:
        return None
    named = list(_one_of_each(program))
    flat = ((entity, above) for entity, above in named if program.entities[entity.type].flat and above)
    placed = tuple(Placement(entity=entity, parent=Entity.parse(above)) for entity, above in flat)
    of_type: Mapping[str | None, Entity | None] = {None: None} | {entity.type: entity for entity, _ in named[::-1]}
    scopes = {name: [of_type[scope] for scope in role.scopes or (None,)] for name, role in program.roles.items()}
    about = "What a user may do who holds the role alone, within its scope, as a member of what contains the entity."
    # A membership in each entity: what a state does not name is not asked about.
    entities, state = [entity for entity, _ in named], State(entities=placed)
    return _matrix(program, state, scopes, entities, about, lambda number: "yes" if number else "")


def roles_of_state(program: Program, state: State) -> RoleMatrix | None:
    """The roles that rows of a state name, each with the number of entities on which it gives an operation; None without roles."""
    scopes: dict[str, list[Entity | None]] = {}
    for row in state.assignments:
        scopes.setdefault(row.role, []).append(row.scope)
    holders = [row.grantee for row in state.grants] + [owner for _, owner in state.owners]
    for holder in holders:
        if holder.startswith("role:"):
            scopes.setdefault(holder.removeprefix("role:"), [None])
    if not scopes:
        return None
    asked = (atom for rule in program.rules.values() for atom in reached_atoms(program, rule.item_condition))
    types = {atom.target.type for atom in asked if isinstance(atom, Member)}
    joined = [entity for entity in universe(program, state, types) if entity.type in types] if types else []
    about = "On how many of the entities that the state names a user may do it who holds the role alone, as a member of what contains them."
    return _matrix(
        program,
        state,
        {role: list(dict.fromkeys(scopes[role])) for role in sorted(scopes)},
        joined,
        about,
        lambda number: str(number) if number else "",
    )


def _matrix(
    program: Program,
    state: State,
    scopes: Mapping[str, Sequence[Entity | None]],
    joined: Sequence[Entity],
    about: str,
    cell: Callable[[int], str],
) -> RoleMatrix:
    """The permissions of users who hold one role each, within its scopes, and are members of some entities."""
    known = names(program, state)
    free = (name for number in count() if (name := f"{HOLDER}{number}") not in known)
    holders = dict(zip(scopes, free, strict=False))
    pairs = ((role, scope) for role, within in scopes.items() for scope in within)
    rows = (Assignment(principal=f"user:{holders[role]}", role=role, scope=scope) for role, scope in pairs)
    members = product(holders.values(), joined)
    held = replace(state, assignments=(*state.assignments, *rows), members=(*state.members, *members))
    reference = Reference(program, held)
    counts: dict[Key, list[int]] = {key: [0] * len(scopes) for key in program.rules}
    for at, holder in enumerate(holders.values()):
        for allowed in what_can(reference, held, holder).allowed:
            counts[allowed.resource.type, allowed.operation][at] += 1
    return RoleMatrix(
        roles=tuple(scopes), cells={key: tuple(map(cell, numbers)) for key, numbers in counts.items()}, about=about
    )


def _one_of_each(program: Program) -> Iterator[tuple[Entity, str]]:
    """An entity of each type, each with the key of its container."""
    for type_ in program.entities.values():
        if type_.parent is None:
            key = f"{type_.name}:" if type_.single else f"{type_.name}:{type_.name}"
            yield from ((Entity.parse(lower), container) for lower, container in at_or_below(program, key))
