"""A policy that has every part of a state in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.ir import Program
from privtab.pipeline import load_program

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {lake: {schema: {table:, settings:}, user:, group:, role:}, depot: {crate:}}
types: {settings: {single: true}}
privileges:
  SELECT: {on: [lake, schema, table, crate]}
  CREATE_TABLE: {on: [lake, schema]}
  OLD: {on: [table], deprecated: use SELECT}
  MANAGE: {on: [lake, depot]}
  READ: {alias_of: SELECT, deprecated: use SELECT}
sets: {ALL: [SELECT, CREATE_TABLE], EVERYTHING: [READ, MANAGE]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group]}}
roles:
  keeper: {scope: lake, grants: {lake: [MANAGE]}}
  schema_administrator: {scope: schema, grants: {schema: [CREATE_TABLE]}}
  visitor: {grants: {lake: [SELECT]}}
tables:
  table: {load: SELECT (table) and member (lake) or owner (table) or OLD (table)}
  schema: {create_table: CREATE_TABLE (schema) or service admin}
  lake: {manage: MANAGE (lake)}
  settings: {change: owner (schema)}
  crate: {open: SELECT (crate) or MANAGE (depot)}
"""


@pytest.fixture(scope="session")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "shop.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def shop(policy_file: Path) -> Program:
    return load_program(policy_file)
