"""Trino's table with row filters and column masks, and the example state with what they ask for."""

from __future__ import annotations

from typing import Any

import yaml
from checkout import ROOT

SHIPPED = ROOT / "policy_src" / "trino"
ADDED = {
    'version: "476"\n': 'version: "476"\ndialect: trino\n',
    "types:\n": """\
types:
  table:
    row_filters:
      all_rows: {requires: ALL_ROWS (table), sql: "TRUE"}
      own_region: {requires: entity.by_region and SELECT (table), sql: "regionkey = {user.region}"}
  column:
    column_masks:
      plain: {requires: UNMASKED (column), sql: "{column}"}
      first_letters: {requires: entity.personal and SELECT (column), sql: "substr({column}, 1, 4)"}
""",
    "  table: {note: also views and materialized views}\n": "",
    "privileges:\n": """\
attributes:
  user: {region: integer}
  entity: {by_region: {bool: true, on: [table]}, personal: {bool: true, on: [column]}}
privileges:
  ALL_ROWS: {on: [server, catalog, schema, table]}
  UNMASKED: {on: [server, catalog, schema, table, column]}
""",
}
NATION, ADDRESS = "table:tpch/tiny/nation", "column:tpch/tiny/customer/address"


def policy() -> str:
    """The shipped table, with filters and masks on all tables and columns."""
    text = (SHIPPED / "476.yaml").read_text(encoding="utf-8")
    for old, new in ADDED.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def state() -> dict[str, Any]:
    """The example state: everybody sees all of `tpch.tiny`, but nations of their region, and the first letters of addresses."""
    rows: dict[str, Any] = yaml.safe_load((SHIPPED / "state.yaml").read_text(encoding="utf-8"))

    def public(effect: str, privilege: str, entity: str) -> dict[str, str]:
        return {"grantee": "group:public", "effect": effect, "privilege": privilege, "entity": entity}

    rows["grants"] += [
        public("allow", "ALL_ROWS", "schema:tpch/tiny"),
        public("deny", "ALL_ROWS", NATION),
        public("allow", "UNMASKED", "schema:tpch/tiny"),
        public("deny", "UNMASKED", ADDRESS),
    ]
    rows["attributes"] = [
        {"entity": NATION, "attribute": "by_region", "value": "true"},
        {"entity": ADDRESS, "attribute": "personal", "value": "true"},
        {"user": "zoe", "attribute": "region", "value": "1"},
        {"user": "ann", "attribute": "region", "value": "2"},
    ]
    return rows
