"""A policy with row filters and column masks, and a state of which each user gets another answer."""

from __future__ import annotations

from pathlib import Path

from privtab.bundle.pack import state_bundle
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import State

POLICY = """\
privtab: 1
system: lake
version: "1"
dialect: trino
entities: {catalog: {schema: {table: {column: }}}}
types:
  table:
    row_filters:
      all_rows: {requires: owner (table) or MODIFY (table), sql: "TRUE"}
      eu_only: {requires: SELECT (table) and request.purpose = audit, sql: "region = 'EU'"}
      own_rows:
        requires: SELECT (table)
        sql: >-
          manager = {user} AND team IN {groups} AND level <= {user.level} AND '{{' <> {entity.owner_of}
          AND purpose = {request.purpose} AND badge IN {user.badges} AND {schema.open}
  column:
    column_masks:
      plain: {requires: owner (table), sql: "{column}"}
      hashed: {requires: SELECT (table) and entity.pii, sql: "sha256(to_utf8({column}))"}
      blank: {requires: SELECT (column), sql: "''"}
privileges: [SELECT, MODIFY]
attributes:
  user: {level: integer, badges: {set: [red, blue]}}
  entity:
    pii: {bool: true, on: [column]}
    open: {bool: true, on: [schema]}
    owner_of: {text: true, on: [table]}
  request: {purpose: {enum: [audit, work], default: work}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group]}, groups: [state, request]}
tables:
  table: {load: SELECT (table)}
"""
STATE = """\
owners:
  - {entity: "table:m/s/t", owner: "user:ann"}
memberships:
  - {user: eve, group: staff}
  - {user: eve, group: b'c}
grants:
  - {grantee: "group:staff", effect: allow, privilege: SELECT, entity: "table:m/s/t"}
  - {grantee: "user:ben", effect: allow, privilege: SELECT, entity: "catalog:m"}
  - {grantee: "user:ben", effect: deny, privilege: SELECT, entity: "table:m/s/hidden"}
  - {grantee: "user:o'hara", effect: allow, privilege: SELECT, entity: "catalog:m"}
attributes:
  - {user: eve, attribute: level, value: "-3"}
  - {user: eve, attribute: badges, value: red}
  - {user: eve, attribute: badges, value: blue}
  - {user: "o'hara", attribute: level, value: "7"}
  - {entity: "schema:m/s", attribute: open, value: "true"}
  - {entity: "table:m/s/t", attribute: owner_of, value: "the 'board'"}
  - {entity: "column:m/s/t/ssn", attribute: pii, value: "true"}
  - {entity: "column:m/s/t/a%2F\\"b", attribute: pii, value: "true"}
"""
USERS = ("ann", "eve", "ben", "o'hara", "zoe")


def made(folder: Path) -> tuple[Program, State, list[Path]]:
    """The program, the state, and the bundles of both."""
    (folder / "lake.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "state.yaml").write_text(STATE, encoding="utf-8")
    program = load_program(folder / "lake.yaml")
    state, findings = validate(program, load_raw_state(folder / "state.yaml"))
    assert not findings
    bundles = [folder / "lake-policy.tar.gz", folder / "lake-state.tar.gz"]
    for path, content in zip(bundles, (policy_artifacts(program).bundle(), state_bundle(program, state)), strict=True):
        path.write_bytes(content)
    return program, state, bundles
