"""A small policy with its state and rows of requests, shared by the tests of decisions on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLICY = """
privtab: 1
system: deck
version: '1'
entities:
  shop:
    shelf: {box:}
    user:
    role:
privileges: [LOOK, TAKE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}, groups: [state, request]}
tables:
  shelf:
    add: LOOK (shop)
  box:
    look: LOOK (box)
    list: {requires: LOOK (shop), each: LOOK (box)}
    move: {with: {target: [shelf, shop]}, requires: TAKE (box) and LOOK (target)}
    take: {requires: "TAKE (box) and (owner (shelf) when careful)"}
  user: {get: self}
  role: {use: holds (role)}
"""
CATALOGS = """\
privtab: 1
system: rows
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [USE, READ]
semantics: {inheritance: down, deny: overrides}
tables:
  table:
    create: {requires: USE (schema), grants: READ (table)}
    read: USE (catalog) and READ (table)
    copy: {with: {to: [schema, table]}, requires: READ (table) and READ (to)}
"""
"""A policy with three levels of entities."""
STATE = """
assignments:
  - {principal: "user:bob", role: clerk}
  - {principal: "group:hr", role: clerk}
grants:
  - {grantee: "user:ann", effect: allow, privilege: LOOK, entity: "shop:s"}
  - {grantee: "user:ann", effect: deny, privilege: LOOK, entity: "box:s/a/2"}
  - {grantee: "role:clerk", effect: allow, privilege: TAKE, entity: "shelf:s/a"}
  - {grantee: "role:clerk", effect: allow, privilege: LOOK, entity: "shelf:s/b"}
  - {grantee: "user:cy", effect: allow, privilege: LOOK, entity: "box:s/100%25/a%2Fb"}
owners:
  - {entity: "shelf:s/b", owner: "user:bob"}
"""
LOOKS: tuple[tuple[str | None, str | None, bool, str | None], ...] = (
    ("ann", "s/a/1", True, None),
    ("user:ann", "s/a/1", True, None),
    ("ann", "s/a/2", False, "not granted"),
    ("bob", "s/a/1", False, "not granted"),
    ("bob", "s/b/1", True, None),
    ("cy", "s/100%25/a%2Fb", True, None),
    ("nobody", "s/a/1", False, "not granted"),
    (None, "s/a/1", False, "null"),
    ("", "s/a/1", False, "null"),
    ("user:", "s/a/1", False, "null"),
    ("ann", None, False, "null"),
    ("ann", "s//1", False, "malformed path"),
    ("ann", "s/a/100%", False, "malformed path"),
    ("ann", "s/a", False, "wrong depth"),
    ("ann", "", False, "wrong depth"),
    ("ann", "s/a/1/x", False, "wrong depth"),
)
"""(user, path of a box, whether `look` is allowed, reason if not)"""


def files(folder: Path) -> tuple[str, str]:
    """Write the policy and the state to a folder and return their paths."""
    policy, state = folder / "deck.yaml", folder / "state.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    state.write_text(STATE, encoding="utf-8")
    return str(policy), str(state)


def frame(spark: SparkSession, rows: Any, schema: str) -> DataFrame:
    """Rows as a DataFrame with one partition, numbered from 0 in the column `n`."""
    numbered = [(number, *row) for number, row in enumerate(rows)]
    return spark.createDataFrame(numbered, f"n int, {schema}").coalesce(1)


def answer_rows(df: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of the answers, in the order of the rows."""
    names = columns or ("allowed", "reason")
    return [tuple(row[name] for name in names) for row in df.orderBy("n").collect()]
