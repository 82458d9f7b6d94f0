"""A seeded world of users, roles and grants, with requests and their correct answers in plain Python.

Nothing here imports privtab, so that the expected answers share no bug with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

REQUESTS = 10_000
METALAKE = "m"
NOISE = ("CREATE_TABLE", "CREATE_TOPIC", "USE_MODEL", "MODIFY_TABLE")
"""Privileges that no operation here requires, except that `load` accepts the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a world. `schemas` are counted in one catalog, `tables` in one schema."""

    users: int
    groups: int
    roles: int
    catalogs: int
    schemas: int
    tables: int
    grants: int
    assignments: int

    @property
    def table_names(self) -> int:
        """The number of tables that a request may name."""
        return self.catalogs * self.schemas * self.tables


SIZES: Mapping[str, Size] = {
    "S": Size(users=1_000, groups=20, roles=100, catalogs=5, schemas=20, tables=100, grants=2_300, assignments=3_000),
    "L": Size(
        users=100_000, groups=2_000, roles=5_000, catalogs=20, schemas=500, tables=100, grants=215_000,
        assignments=300_000,
    ),
    # Fewer roles, each with 500 grants.
    "R": Size(
        users=100_000, groups=2_000, roles=400, catalogs=20, schemas=500, tables=100, grants=200_000,
        assignments=300_000,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A state and requests. Entities are given by path: `m/c1` is a catalog, `m/c1/s2/t3` a table."""

    size: Size
    grants: tuple[tuple[str, str, str, str], ...]
    """(role, `allow` or `deny`, privilege, path), sorted, without duplicates."""
    roles_of: Mapping[str, tuple[str, ...]]
    """The roles assigned to each user directly, not through groups."""
    groups_of: Mapping[str, tuple[str, ...]]
    group_roles: Mapping[str, tuple[str, ...]]
    members: frozenset[str]
    """Members of the metalake: 99 % of the users."""
    owners: Mapping[str, str]
    """The owner of each schema."""
    requests: tuple[tuple[str, str], ...]
    """(user, path of a table); `select` is allowed for half of them."""
    may_select: tuple[bool, ...]
    may_load: tuple[bool, ...]

    def all_roles(self, user: str) -> set[str]:
        """The roles of a user, directly and through their groups."""
        return {*self.roles_of[user], *(r for g in self.groups_of[user] for r in self.group_roles[g])}


@cache
def world(size: str) -> World:
    """The world of a size; the same on every machine."""
    return _Maker(SIZES[size]).made()


def ancestors(path: str) -> tuple[str, ...]:
    """The paths from the root down to an entity, itself last.

    >>> ancestors("m/c1/s2")
    ('m', 'm/c1', 'm/c1/s2')
    """
    names = path.split("/")
    return tuple("/".join(names[: i + 1]) for i in range(len(names)))


class Truth:
    """Decides directly from the grants."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._allowed: dict[tuple[str, str], set[str]] = {}
        self._denied: dict[tuple[str, str], set[str]] = {}
        for role, effect, privilege, path in world.grants:
            by_effect = self._allowed if effect == "allow" else self._denied
            by_effect.setdefault((privilege, path), set()).add(role)

    def holds(self, user: str, privilege: str, path: str) -> bool:
        """Whether a role of the user has the privilege on the entity or above it, and none has a denial there."""
        roles = self._world.all_roles(user)
        places = [(privilege, place) for place in ancestors(path)]
        nothing: set[str] = set()
        allowed = any(roles & self._allowed.get(place, nothing) for place in places)
        return allowed and not any(roles & self._denied.get(place, nothing) for place in places)

    def select(self, user: str, table: str) -> bool:
        """The three privileges alone: use the catalog, use the schema, select from the table."""
        _, catalog, schema, _ = ancestors(table)
        return (
            self.holds(user, "USE_CATALOG", catalog)
            and self.holds(user, "USE_SCHEMA", schema)
            and self.holds(user, "SELECT_TABLE", table)
        )

    def load(self, user: str, table: str) -> bool:
        """The row of the policy: a member who can load the catalog and the schema, and who owns or may read the table."""
        _, catalog, schema, _ = ancestors(table)
        owns = self._world.owners.get(schema) == user
        return (
            user in self._world.members
            and self.holds(user, "USE_CATALOG", catalog)
            and (owns or self.holds(user, "USE_SCHEMA", schema))
            and (owns or self.holds(user, "SELECT_TABLE", table) or self.holds(user, "MODIFY_TABLE", table))
        )


class _Maker:
    """Generates a world with one seeded random generator."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.chance = random.Random(1100)
        self.roles = [f"r{i}" for i in range(size.roles)]
        self.users = [f"u{i}" for i in range(size.users)]

    def made(self) -> World:
        grants = sorted(grant for role in self.roles for grant in self.grants_of(role))
        groups = [f"g{i}" for i in range(self.size.groups)]
        group_roles = {group: (self.chance.choice(self.roles),) for group in groups}
        groups_of = {u: (self.chance.choice(groups),) if self.chance.random() < 0.5 else () for u in self.users}
        assigned: set[tuple[str, str]] = set()
        while len(assigned) < self.size.assignments:
            assigned.add((self.chance.choice(self.users), self.chance.choice(self.roles)))
        roles_of: dict[str, list[str]] = {user: [] for user in self.users}
        for user, role in sorted(assigned):
            roles_of[user].append(role)
        schemas = [f"{METALAKE}/c{c}/s{s}" for c in range(self.size.catalogs) for s in range(self.size.schemas)]
        unasked = World(
            size=self.size,
            grants=tuple(grants),
            roles_of={user: tuple(roles) for user, roles in roles_of.items()},
            groups_of=groups_of,
            group_roles=group_roles,
            members=frozenset(user for user in self.users if self.chance.random() < 0.99),
            owners={schema: self.chance.choice(self.users) for schema in schemas},
            requests=(),
            may_select=(),
            may_load=(),
        )
        return self.asked(unasked)

    def grants_of(self, role: str) -> set[tuple[str, str, str, str]]:
        """Grants in a few schemas of a few catalogs, with some denials."""
        wanted = self.size.grants // self.size.roles
        found: dict[tuple[str, str, str, str], None] = {}
        while len(found) < wanted:
            for privilege, path, effect in self.workplace():
                found.setdefault((role, effect, privilege, path))
        return set(list(found)[:wanted])

    def workplace(self) -> Iterator[tuple[str, str, str]]:
        """Grants on one catalog and entities below it: (privilege, path, effect)."""
        draw = self.chance.random
        catalog = self.below(METALAKE)
        yield "USE_CATALOG", METALAKE if draw() < 0.02 else catalog, "allow"
        for _ in range(self.chance.randint(1, 4)):
            schema = self.below(catalog)
            yield "USE_SCHEMA", catalog if draw() < 0.1 else schema, "allow"
            reach = draw()
            if reach < 0.5:
                yield "SELECT_TABLE", catalog if reach < 0.05 else schema, "allow"
            else:
                for _ in range(self.chance.randint(1, 5)):
                    yield "SELECT_TABLE", self.below(schema), "allow"
            if draw() < 0.4:
                yield self.chance.choice(NOISE), schema, "allow"
            if draw() < 0.12:
                yield "SELECT_TABLE", self.below(schema), "deny"
            if draw() < 0.03:
                yield self.chance.choice(["USE_SCHEMA", "SELECT_TABLE"]), self.below(catalog), "deny"

    def below(self, path: str) -> str:
        """A random child of an entity."""
        level = path.count("/")
        letter, count = (("c", self.size.catalogs), ("s", self.size.schemas), ("t", self.size.tables))[level]
        return f"{path}/{letter}{self.chance.randrange(count)}"

    def asked(self, world: World) -> World:
        """The world with its requests, mostly where the user's roles hold something, so that near misses are frequent."""
        truth = Truth(world)
        selectable: dict[str, list[str]] = {}
        for role, _, privilege, path in world.grants:
            if privilege == "SELECT_TABLE":
                selectable.setdefault(role, []).append(path)
        wanted = {True: REQUESTS // 2, False: REQUESTS // 2}
        requests: list[tuple[str, str]] = []
        answers: list[bool] = []
        while any(wanted.values()):
            user = self.chance.choice(self.users)
            roles = sorted(world.all_roles(user))
            path = METALAKE
            if roles and self.chance.random() < 0.85:
                path = self.chance.choice(selectable.get(self.chance.choice(roles), [METALAKE]))
            while path.count("/") < 3:
                path = self.below(path)
            answer = truth.select(user, path)
            if wanted[answer]:
                wanted[answer] -= 1
                requests.append((user, path))
                answers.append(answer)
        return World(
            size=world.size,
            grants=world.grants,
            roles_of=world.roles_of,
            groups_of=world.groups_of,
            group_roles=world.group_roles,
            members=world.members,
            owners=world.owners,
            requests=tuple(requests),
            may_select=tuple(answers),
            may_load=tuple(truth.load(user, table) for user, table in requests),
        )
