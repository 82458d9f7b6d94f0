"""Paths on which a type nests: what every plan answers about each level, and why rows are no requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_plans import check_rows, in_every_way

POLICY = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {namespace: {table:, settings:}}}
types: {namespace: {nested: 3}, settings: {single: true}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
roles:
  keeper: {scope: namespace, grants: {namespace: [READ], table: [READ]}}
tables:
  namespace:
    show: READ (namespace)
    add: {requires: READ (parent), creates: true}
    top: USE (first namespace)
    some: USE (any namespace)
    all: USE (every namespace)
    adopt: {creates: true, requires: USE (any namespace)}
    rename: owner (any namespace)
  table:
    read: READ (table)
    open: USE (every namespace)
    list: {requires: USE (namespace), each: READ (table)}
    copy: {with: {to: [namespace, table]}, requires: READ (table) and READ (to)}
    tune: READ (settings)
"""
STATE = """
assignments:
  - {principal: "user:kim", role: keeper, scope: "namespace:c/k"}
  - {principal: "user:kim", role: reader, scope: "namespace:c/a/b"}
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "namespace:c/a"}
  - {grantee: "user:ann", effect: deny, privilege: READ, entity: "namespace:c/a/b/x"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "table:c/a/b/t"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "settings:c/a/b"}
  - {grantee: "user:cat", effect: allow, privilege: READ, entity: "catalog:c"}
  - {grantee: "user:uma", effect: allow, privilege: USE, entity: "namespace:c/a/b"}
  - {grantee: "user:uma", effect: deny, privilege: USE, entity: "namespace:c/a/b/x"}
  - {grantee: "role:reader", effect: allow, privilege: READ, entity: "catalog:c"}
owners:
  - {entity: "namespace:c/a", owner: "user:own"}
"""
NO, MALFORMED, DEPTH = "not granted", "malformed path", "wrong depth"
ROWS: tuple[tuple[str, str, str, str | None, str | None], ...] = (
    # user, action, entity, object `to`, reason
    ("ann", "show", "namespace:c/a", None, None),
    ("ann", "show", "namespace:c/a/b", None, None),
    ("ann", "show", "namespace:c/a/b/x", None, NO),
    ("ann", "show", "namespace:c/b", None, NO),
    ("ann", "read", "table:c/a/b/t", None, None),
    ("ann", "read", "table:c/a/b/x/t", None, NO),
    ("ann", "add", "namespace:c/a/new", None, None),
    ("ann", "add", "namespace:c/a/", None, None),
    ("ann", "add", "namespace:c/", None, NO),
    ("cat", "add", "namespace:c/", None, None),
    ("cat", "add", "namespace:c/a", None, None),
    ("ben", "read", "table:c/a/b/t", None, None),
    ("ben", "read", "table:c/a/t", None, NO),
    ("ben", "tune", "table:c/a/b/any", None, None),
    ("ben", "tune", "table:c/a/any", None, NO),
    ("uma", "top", "namespace:c/a/b", None, NO),
    ("uma", "some", "namespace:c/a/b", None, None),
    ("uma", "some", "namespace:c/a/b/x", None, None),
    ("uma", "some", "namespace:c/a", None, NO),
    ("uma", "all", "namespace:c/a/b", None, NO),
    ("uma", "open", "table:c/a/b/t", None, NO),
    ("uma", "adopt", "namespace:c/a/b/", None, None),
    ("uma", "adopt", "namespace:c/a/", None, NO),
    ("uma", "list", "table:c/a/b/", None, None),
    ("uma", "list", "table:c/a/b/x/", None, NO),
    ("uma", "list", "table:c/a/b/t", None, NO),
    ("own", "rename", "namespace:c/a/b/x", None, None),
    ("own", "rename", "namespace:c/b", None, NO),
    ("kim", "show", "namespace:c/k/l", None, None),
    ("kim", "read", "table:c/k/l/m/t", None, None),
    ("kim", "read", "table:c/a/b/t", None, None),
    ("kim", "read", "table:c/a/t", None, NO),
    ("kim", "show", "namespace:c/a/b/x", None, None),
    ("ann", "copy", "table:c/a/b/t", "namespace:c/a/b", None),
    ("ann", "copy", "table:c/a/b/t", "table:c/a/u", None),
    ("ann", "copy", "table:c/a/b/t", "namespace:c/b", NO),
    ("ann", "copy", "table:c/a/b/t", "namespace:c", DEPTH),
    ("ann", "copy", "table:c/a/b/t", "table:c/1/2/3/4/t", DEPTH),
    ("ann", "copy", "table:c/a/b/t", "table:c/a/b/", MALFORMED),
    ("ann", "read", "table:c/t", None, DEPTH),
    ("ann", "read", "table:c/1/2/3/t", None, NO),
    ("ann", "read", "table:c/1/2/3/4/t", None, DEPTH),
    ("ann", "read", f"table:{'/'.join('c' * 5000)}", None, DEPTH),
    ("ann", "read", "table:", None, DEPTH),
    ("ann", "list", "table:c/1/2/3/", None, NO),
    ("ann", "list", "table:c/1/2/3/4/", None, DEPTH),
    ("ann", "list", "table:c/", None, DEPTH),
    ("ann", "read", "table:c/a/b/", None, MALFORMED),
    ("ann", "list", "table:c/a//", None, MALFORMED),
    ("ann", "list", "table:c//a/", None, MALFORMED),
    ("ann", "list", "table:/", None, MALFORMED),
    ("ann", "list", "table:/c/a/", None, MALFORMED),
    ("ann", "list", "table:c/a%/", None, MALFORMED),
    ("ann", "list", "table:c/a\n/", None, MALFORMED),
    ("ann", "show", "namespace:c/a/b/*", None, MALFORMED),
)


@pytest.mark.slow
@in_every_way
def test_every_plan_answers_about_every_level(way: str, spark: SparkSession, tmp_path: Path) -> None:
    check_rows(spark, tmp_path, POLICY, STATE, ROWS, way)
