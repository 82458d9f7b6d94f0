"""Flat ids: every plan finds where entities lie in the state, and says the same of rows that are no requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_plans import WAYS, check_rows, in_every_way

from privtab_spark import decide

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document: {comment:, settings:}}, team: {group:}}, user: }
types:
  folder: {nested: 3, flat: true}
  document: {flat: true}
  settings: {single: true}
  team: {flat: true}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}, groups: [state, request]}
roles:
  keeper: {scope: folder, grants: {document: [READ], comment: [READ]}}
tables:
  drive: {open: READ (drive)}
  folder:
    show: READ (folder)
    make: {requires: WRITE (parent), creates: true}
    first: owner (first folder)
    every: READ (every folder)
  document:
    read: READ (document)
    ping: anyone
    make: {requires: WRITE (folder), creates: true}
    move: {with: {to: [folder, drive]}, requires: READ (document) and WRITE (to)}
    tune: READ (settings)
  comment:
    read: READ (comment)
    list: {requires: READ (document), each: READ (comment)}
  group: {join: member (group)}
"""
STATE = """
entities:
  - {entity: "folder:f1", parent: "drive:main"}
  - {entity: "folder:f2", parent: "folder:f1"}
  - {entity: "folder:f3", parent: "folder:f2"}
  - {entity: "document:d1", parent: "folder:f1"}
  - {entity: "document:d3", parent: "folder:f3"}
  - {entity: "document:x%2Fy", parent: "folder:f2"}
  - {entity: "team:t1", parent: "drive:main"}
members:
  - {user: gus, of: "group:t1/hr"}
memberships:
  - {user: bea, group: it}
assignments:
  - {principal: "user:kim", role: keeper, scope: "folder:f2"}
  - {principal: "user:sam", role: writer, scope: "document:d3"}
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "drive:main"}
  - {grantee: "user:ann", effect: deny, privilege: READ, entity: "folder:f3"}
  - {grantee: "user:ann", effect: allow, privilege: WRITE, entity: "folder:f2"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "comment:d3/c"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "settings:d3"}
  - {grantee: "user:cat", effect: allow, privilege: WRITE, entity: "drive:main"}
  - {grantee: "role:writer", effect: allow, privilege: READ, entity: "folder:f1"}
owners:
  - {entity: "folder:f1", owner: "user:own"}
"""
ROUTES = """
privtab: 1
system: web
version: '1'
entities: {route: }
types: {route: {flat: true}}
privileges: [CALL]
tables: {route: {call: CALL (route)}}
"""
NO, MALFORMED, DEPTH = "not granted", "malformed path", "wrong depth"
ROWS: tuple[tuple[str, str, str, str | None, str | None], ...] = (
    # user, action, entity, object `to`, reason
    ("ann", "open", "drive:main", None, None),
    ("ann", "open", "drive:main/x", None, DEPTH),
    ("ann", "show", "folder:f2", None, None),
    ("ann", "show", "folder:f3", None, NO),
    ("ann", "show", "folder:f9", None, NO),
    ("ann", "every", "folder:f2", None, None),
    ("ann", "every", "folder:f3", None, NO),
    ("ann", "read", "document:d1", None, None),
    ("ann", "read", "document:d3", None, NO),
    ("ann", "read", "document:x%2Fy", None, None),
    ("ann", "read", "comment:d1/c", None, None),
    ("ann", "read", "comment:d9/c", None, NO),
    ("ann", "ping", "document:d9", None, NO),
    ("zoe", "ping", "document:d1", None, None),
    ("ann", "make", "document:folder:f2/", None, None),
    ("ann", "make", "document:folder:f3/", None, None),
    ("ann", "make", "document:folder:f1/", None, NO),
    ("ann", "make", "document:folder:f9/", None, NO),
    ("ann", "make", "document:drive:main/", None, MALFORMED),
    ("ann", "make", "document:folder:f2/x/", None, MALFORMED),
    ("ann", "make", "document:folder:/", None, MALFORMED),
    ("ann", "make", "document:/", None, MALFORMED),
    ("ann", "make", "document:f2/", None, MALFORMED),
    ("ann", "read", "document:folder:f2/", None, MALFORMED),
    ("ann", "make", "folder:folder:f2/", None, None),
    ("ann", "make", "folder:drive:main/", None, NO),
    ("cat", "make", "folder:drive:main/", None, None),
    ("cat", "make", "folder:f1", None, None),
    ("ann", "make", "folder:f3", None, None),
    ("ann", "make", "folder:f2", None, NO),
    ("ben", "read", "comment:d3/c", None, None),
    ("ben", "read", "comment:d1/c", None, NO),
    ("ben", "tune", "document:d3", None, None),
    ("ben", "tune", "document:d1", None, NO),
    ("ann", "list", "comment:d1", None, None),
    ("ann", "list", "comment:d3", None, NO),
    ("ann", "list", "comment:d1/", None, None),
    ("ann", "list", "comment:d1/c/x", None, MALFORMED),
    ("ann", "read", "comment:d1", None, MALFORMED),
    ("ann", "read", "document:main/f1/d1", None, MALFORMED),
    ("ann", "read", "document:", None, MALFORMED),
    ("ann", "move", "document:d1", "folder:f2", None),
    ("ann", "move", "document:d1", "folder:f3", None),
    ("ann", "move", "document:d1", "folder:f9", NO),
    ("ann", "move", "document:d1", "drive:main", NO),
    ("ann", "move", "document:d1", "folder:f1/f2", MALFORMED),
    ("ann", "move", "document:d1", "drive:main/x", DEPTH),
    ("ann", "move", "document:d1", "folder:drive:main/", MALFORMED),
    ("own", "first", "folder:f3", None, None),
    ("own", "first", "folder:f9", None, NO),
    ("kim", "read", "document:d3", None, None),
    ("kim", "read", "comment:d3/c", None, None),
    ("kim", "read", "document:d1", None, NO),
    ("sam", "read", "comment:d3/c", None, None),
    ("sam", "read", "document:d1", None, NO),
    ("gus", "join", "group:t1/hr", None, None),
    ("gus", "join", "group:t1/it", None, NO),
    ("bea", "join", "group:t1/it", None, None),
    ("bea", "join", "group:t9/it", None, NO),
)


@pytest.mark.slow
@in_every_way
def test_every_plan_finds_where_entities_lie(way: str, spark: SparkSession, tmp_path: Path) -> None:
    check_rows(spark, tmp_path, POLICY, STATE, ROWS, way)


@pytest.mark.slow
@in_every_way
def test_ids_with_slashes_are_one_name_in_columns(way: str, spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the state may write them as they are; a column of paths may not, and a column of names does."""
    policy, state = tmp_path / "policy.yaml", tmp_path / "state.yaml"
    policy.write_text(ROUTES, encoding="utf-8")
    state.write_text("grants:\n- {grantee: 'user:ann', effect: allow, privilege: CALL, entity: 'route:/todos'}\n")
    rows = [("ann", "/todos"), ("ann", "%2Ftodos"), ("ann", "/"), ("ben", "/todos")]
    frame = spark.createDataFrame(rows, "user string, id string")
    reasons: dict[object, list[str | None]] = {
        "id": ["malformed path", None, "malformed path", "malformed path"],
        ("id",): [None, NO, NO, NO],
    }
    for column, expected in reasons.items():
        resource = ("route", column if isinstance(column, str) else ["id"])
        decided = decide(
            frame, str(policy), str(state), subject="user", action="call", resource=resource, **WAYS[way]
        ).collect()
        found = {(row.user, row.id): row.reason for row in decided}
        assert found == dict(zip(rows, expected, strict=True)), column
