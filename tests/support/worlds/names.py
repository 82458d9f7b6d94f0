"""The names in a generated world: few, so that worlds are dense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from unusual_names import ALIKE, CARRIED

from privtab.base.names import encode_name
from privtab.base.request import Entity
from privtab.ir.nodes import Program

USERS = ("ann", "bob", "a/b", "c%")
GROUPS = ("hr", "it")
ROLES = ("reader", "writer", "admin")
PRIVILEGES = ("READ", "WRITE", "USE ALL", "ADMIN")


@dataclass(frozen=True)
class Names:
    """The names of a world. Few, so that worlds are dense."""

    users: Sequence[str] = USERS
    groups: Sequence[str] = GROUPS
    roles: Sequence[str] = ROLES
    entities: Sequence[str] = ("x", "x", "y/z")
    strangers: Sequence[str] = ("nobody",)
    """Users that occur in no state."""


def names(program: Program) -> Names:
    """The names in states and requests of a policy; unusual ones if its version begins with `odd`."""
    return _odd_names(program.version) if program.version.startswith("odd") else Names()


@lru_cache(maxsize=256)
def _odd_names(version: str) -> Names:
    rnd = random.Random(version)

    def sample(plain: Sequence[str], count: int) -> tuple[str, ...]:
        """A plain name, names that could be confused with each other, and unusual ones."""
        alike = rnd.choice(ALIKE)
        chosen = [*rnd.sample(alike, k=min(len(alike), count - 1)), *rnd.sample(CARRIED, k=count)]
        return (rnd.choice(plain), *chosen[: count - 1])

    return Names(
        users=sample(USERS, 4),
        groups=sample(GROUPS, 3),
        # Keep the plain names of roles that a policy may declare.
        roles=(*ROLES[:2], *sample(ROLES[2:], 2)),
        entities=sample(("x",), 3),
    )


def entity(program: Program, type_: str, rnd: random.Random) -> Entity:
    """A random entity; with few names, so that worlds are dense."""
    known = names(program)
    path: list[str] = []
    for link in program.chain(type_):
        kind = program.entities[link]
        if kind.single:
            continue
        if kind.flat:
            path = [encode_name(rnd.choice(known.entities))]
            continue
        match kind.principal:
            case "user":
                path.append(encode_name(rnd.choice(known.users)))
            case "group":
                path.append(encode_name(rnd.choice(known.groups)))
            case "role":
                path.append(encode_name(rnd.choice(known.roles)))
            case _:
                levels = rnd.choice([1, 1, 2, 2, 3, 4]) if kind.nested else 1
                path += [encode_name(rnd.choice(known.entities)) for _ in range(levels)]
    return Entity(type_, "/".join(path))


def scope_of(program: Program, role: str, rnd: random.Random, undeclared: Sequence[str | None]) -> Entity | None:
    """A random entity to assign a role for; of one of these types if the policy does not declare the role."""
    declared = program.roles.get(role)
    types = (declared.scopes or (None,)) if declared else undeclared
    type_ = types[0] if len(types) == 1 else rnd.choice(types)
    return None if type_ is None else entity(program, type_, rnd)
