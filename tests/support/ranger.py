"""Policies of Apache Ranger, and tables of privtab that their grants fit."""

from __future__ import annotations

LAKE = """\
privtab: 1
system: lake
version: "1"
entities:
  metastore:
  user:
  group:
  role:
  schema:
    table:
      column:
  catalog:
    namespace:
      view:
privileges:
  SELECT: {on: [schema, table, column]}
  UPDATE: {on: [schema, table]}
  TABLE_READ_DATA: {on: [catalog, namespace]}
  VIEW_LIST: {on: [catalog, namespace, view]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group]}}
tables:
  table:
    read: SELECT (table)
"""


def ranger_policy(id_: int, **more: object) -> dict[str, object]:
    """A policy as an export file has it: ann and hr may select from sales.orders. `more`: in place of or beside its keys."""
    item = {"accesses": [{"type": "select", "isAllowed": True}], "users": ["ann"], "groups": ["hr"], "roles": []}
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}, "column": {"values": ["*"]}}
    return {"id": id_, "name": f"p{id_}", "isEnabled": True, "resources": resources, "policyItems": [item], **more}
