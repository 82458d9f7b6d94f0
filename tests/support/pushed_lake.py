"""A lake with inheritance and denials, and how databases have it: as schemas and tables. Random states of it."""

from __future__ import annotations

import random

from privtab.base.request import Entity
from privtab.state.nodes import Assignment, Grant, State

LAKE = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}, view: }
privileges:
  USE: {on: [catalog, schema]}
  SELECT: {on: [catalog, schema, table]}
  MODIFY: {on: [catalog, schema, table], implies: [SELECT]}
  COMMENT: {on: [table]}
semantics: {inheritance: down, deny: overrides, hierarchy: [groups], owner: {kinds: [user, group]}}
roles:
  reader: {scope: schema, grants: {schema: [USE], table: [SELECT]}}
tables:
  table:
    read: USE (schema) and SELECT (table)
    write: USE (schema) and MODIFY (table)
    drop: owner (table)
"""
MAPPING = """\
push: 1
title: The lake in PostgreSQL
target: postgresql
within: {catalog: "{catalog}"}
objects: {schema: schema, table: table}
privileges:
  USE: {schema: USAGE}
  SELECT: {table: SELECT}
  MODIFY: {table: [INSERT, UPDATE]}
owners: {table: []}
leave_out:
  tables: {service_admins: superusers are made by hand}
  privileges: {COMMENT: only an owner may comment in PostgreSQL}
operations:
  table/read: {schema: USAGE, table: SELECT}
  table/write: {schema: USAGE, table: UPDATE}
"""
SCHEMAS = ("sales", "h%r")
TABLES = ("orders", 'it"ems', "naïve *")
USERS = ("ann", "o'neil", "cy")
GROUPS = ("staff", "eu")
ROLES = ("analyst", "temp")


def entity(*names: str) -> Entity:
    """A catalog, a schema or a table by its plain names."""
    encoded = [name.replace("%", "%25").replace("/", "%2F") for name in names]
    return Entity(("catalog", "schema", "table")[len(names) - 1], "/".join(encoded))


def random_state(seed: int) -> State:
    """Grants and denials on all levels, to users, groups, groups in groups and roles, some of them within a schema."""
    rng = random.Random(seed)
    catalogs = ("hive", "hive", "hive", "ice")

    def place(levels: tuple[int, ...]) -> Entity:
        return entity(*(rng.choice(catalogs), rng.choice(SCHEMAS), rng.choice(TABLES))[: rng.choice(levels)])

    principals = [f"user:{u}" for u in USERS] + [f"group:{g}" for g in GROUPS] + [f"role:{r}" for r in ROLES]
    grants = []
    for _ in range(rng.randint(3, 12)):
        privilege = rng.choice(("USE", "SELECT", "MODIFY"))
        effect = "deny" if rng.random() < 0.25 else "allow"
        levels = (1, 2) if privilege == "USE" else (1, 2, 3)
        grants.append(Grant(grantee=rng.choice(principals), effect=effect, privilege=privilege, entity=place(levels)))  # type: ignore[arg-type]
    assignments = [
        Assignment(
            principal=rng.choice(principals[: len(USERS) + len(GROUPS)]),
            role=rng.choice(ROLES),
            scope=place((2,)) if rng.random() < 0.3 else None,
        )
        for _ in range(rng.randint(0, 4))
    ]
    if rng.random() < 0.5:
        assignments.append(Assignment(principal="user:cy", role="reader", scope=place((2,))))
    memberships = [(rng.choice(USERS), rng.choice(GROUPS)) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.5:
        memberships.append(("group:eu", "staff"))
    return State(
        grants=tuple(dict.fromkeys(grants)),
        assignments=tuple(dict.fromkeys(assignments)),
        memberships=tuple(dict.fromkeys(memberships)),
    )
