"""A policy in which creating, granting and removing are operations, for tests of the store."""

from __future__ import annotations

from privtab.base.request import Entity, Request

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {schema: {table: }, user: , role: }}
privileges:
  USE: {on: [lake, schema]}
  SELECT: {on: [lake, schema, table]}
  CREATE: {on: [lake, schema]}
  MANAGE: {on: [lake]}
  ADMIN: {on: [lake]}
sets: {READ: [USE, SELECT]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group, role]}}
tables:
  lake:
    create: {requires: service admin, becomes: owner}
    grant: {requires: owner (lake) or MANAGE (lake), sensitive: true}
  schema:
    create: {requires: CREATE (lake) or owner (lake), becomes: owner}
    drop: {requires: owner (schema) or owner (lake), destructive: true}
    grant: {requires: owner (schema) or owner (lake) or MANAGE (lake), sensitive: true}
  table:
    create: {requires: CREATE (schema) or owner (schema) or owner (lake), becomes: owner, grants: SELECT}
    read: SELECT (table) or owner (table)
    drop: {requires: owner (table) or owner (schema), destructive: true}
    grant: {requires: owner (table), sensitive: true}
  user:
    remove: {requires: owner (lake), revokes: [grants, assignments, owners], destructive: true}
  role:
    grant: {requires: owner (lake) or MANAGE (lake), sensitive: true}
"""


def asks(user: str, action: str, resource: str) -> Request:
    return Request(user=user, action=action, resource=Entity.parse(resource))


def grant(grantee: str, privilege: str, entity: str, **window: str) -> dict[str, str]:
    return {"grantee": grantee, "effect": "allow", "privilege": privilege, "entity": entity, **window}
