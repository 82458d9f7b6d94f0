"""Privileges whose names are several words, as some systems spell them, from the table to every answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

POLICY = """\
privtab: 1
system: unity
version: "1"
entities: {catalog: {schema: {table:}}}
privileges:
  USE CATALOG: {on: [catalog]}
  USE SCHEMA: {on: [catalog, schema]}
  SELECT: {on: [catalog, schema, table]}
  ALL PRIVILEGES: {on: [catalog, schema, table], implies: [SELECT, USE SCHEMA]}
  OPEN CATALOG: {alias_of: USE CATALOG}
semantics: {inheritance: down, deny: overrides}
roles:
  reader: {grants: {catalog: USE CATALOG, table: [SELECT]}}
tables:
  table:
    read: '"USE CATALOG" (catalog) and "USE SCHEMA" (schema) and SELECT/"ALL PRIVILEGES" (table)'
  schema:
    create: {requires: '"USE CATALOG" (catalog)', creates: true, grants: '"ALL PRIVILEGES" + SELECT (schema)'}
"""
SCENARIOS = """\
scenarios: 1
policy: unity.yaml
needs:
  - ask: read table:c/s/x
    all: ['"USE CATALOG" (catalog:c)', '"USE SCHEMA" (schema:c/s)', 'SELECT/"ALL PRIVILEGES" (table:c/s/x)']
  - ask: create schema:c/s
    by: '"OPEN CATALOG" (catalog:c)'
    effects: ["grant ALL PRIVILEGES ({resource})", "grant SELECT ({resource})"]
"""
STATE = """\
grantee,effect,privilege,entity
user:ann,allow,OPEN CATALOG,catalog:c
user:ann,allow,ALL PRIVILEGES,schema:c/s
"""


@pytest.fixture
def unity(tmp_path: Path) -> Path:
    (tmp_path / "unity.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "unity.scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "grants.csv").write_text(STATE, encoding="utf-8")
    return tmp_path


def test_the_table_is_valid_formatted_and_covered(privtab: Callable[..., Any], unity: Path) -> None:
    assert privtab("lint", unity / "unity.yaml").code == 0
    assert privtab("fmt", "--check", unity / "unity.yaml").code == 0
    tested = privtab("test", unity / "unity.yaml", "--engine", "both")
    assert (tested.code, tested.err) == (0, "")


def test_suggested_scenarios_are_read_back(privtab: Callable[..., Any], unity: Path) -> None:
    (unity / "unity.scenarios.yaml").unlink()
    suggested = unity / "suggested.scenarios.yaml"
    assert privtab("test", unity / "unity.yaml", "--suggest", "-o", suggested).code == 0
    assert '"USE CATALOG" (catalog:c)' in suggested.read_text(encoding="utf-8")
    assert privtab("test", suggested).code == 0


def test_answers_spell_conditions_as_the_table_does(privtab: Callable[..., Any], unity: Path) -> None:
    asked = ("-p", unity / "unity.yaml", "-s", unity / "state")
    allowed = privtab("explain", "ann", "read", "table:c/s/t", *asked).out
    assert '✓ "USE CATALOG" (catalog:c)' in allowed
    assert "ALL PRIVILEGES granted to user:ann at schema:c/s (which implies USE SCHEMA)" in allowed
    assert '"ALL PRIVILEGES"' in privtab("who-can", "read", "table:c/s/t", *asked).out
    assert privtab("what-can", "bob", "schema:c/s", "--gain", "ALL PRIVILEGES", *asked).code == 0


def test_a_wrong_name_is_one_finding_at_its_place(privtab: Callable[..., Any], unity: Path) -> None:
    wrong = unity / "wrong.yaml"
    wrong.write_text(POLICY.replace("  USE SCHEMA: {on", "  USE  SCHEMA: {on"), encoding="utf-8")
    found = privtab("lint", wrong)
    assert (found.code, found.out.count("error P")) == (1, 1)
    assert "in one word or several with" in found.out
