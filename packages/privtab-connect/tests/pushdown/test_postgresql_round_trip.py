"""What is imported from a real PostgreSQL, pushed, and imported again is the same, and so is what the server itself lets everyone do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy
from checkout import ROOT
from postgresql_server import postgresql
from seeds import daily, seeds

from privtab.base import Entity
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Assignment, Grant, State
from privtab.state.nodes import ALL_TABLES
from privtab_connect.errors import PushError
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load as import_document
from privtab_connect.importing.run import run as read
from privtab_connect.pushdown.document import load
from privtab_connect.pushdown.rights import GRANT_OPTION, NativeGrant
from privtab_connect.pushdown.run import PushReport, push

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]

POLICY = ROOT / "policy_src" / "postgresql" / "15.yaml"
USERS = ("ann", "o'neil/1", "cy", "dan", "E%2Fve")
ROLES = ("eng", "hr", "ops", "a%b", "x*y")
ROUTINES = (
    "function {s}.one() returns int language sql as 'select 1'",
    "function {s}.f() returns int language sql as 'select 1'",
    "function {s}.f(int) returns int language sql as 'select 1'",
    "function {s}.f(x text, int[]) returns int language sql as 'select 1'",
    "function {s}.f(x {s}.d) returns int language sql as 'select 1'",
    "function {s}.\"G\"(int) returns int language sql as 'select 1'",
    "function {s}.\"G\"(variadic int[]) returns int language sql as 'select 1'",
    "function {s}.\"G(int)\"() returns int language sql as 'select 1'",
    "procedure {s}.p() language sql as 'select 1'",
    "procedure {s}.q() language sql as 'select 1'",
    "procedure {s}.q(out a int, inout b text) language sql as 'select 1, ''a'''",
    "aggregate {s}.total(int) (sfunc = int4pl, stype = int4)",
    "aggregate {s}.nth(order by int) (sfunc = int4pl, stype = int4)",
)
SCHEMAS = ("s1", '"%/S"')
OBJECTS = (
    "create type {s}.e as enum ('x')",
    "create domain {s}.d as int",
    "create type {s}.c as (a int)",
    "create type {s}.r as range (subtype = int4)",
    'create table {s}."t/1" (a serial, b int)',
    "create table {s}.t2 (a int, b int)",
    "create view {s}.v as select 1 as a",
    "create materialized view {s}.m as select 1 as a",
    "create sequence {s}.q",
)
TYPES = ("e", "d", "c", "r", "r_multirange")
TABLE = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
COLUMN = ("select", "insert", "update", "references")
KNOWN = {
    ("select", "table"),
    ("usage", "schema"),
    ("usage", "sequence"),
    ("usage", "type"),
    ("connect", "database"),
    ("execute", "routine"),
}
"""The privileges whose grant options a state has."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def routine_names(schema: str) -> list[str]:
    """How statements name the routines of a schema."""
    arguments = ("one()", "f()", "f(int)", "f(text, int[])", f"f({schema}.d)", '"G"(int)', '"G"(int[])', '"G(int)"()',
                 "p()", "q()", "q(text)", "total(int)", "nth(int)")  # fmt: skip
    return [f"{schema}.{name}" for name in arguments]


def rights(dice: random.Random, database: str, changes: int, types: Sequence[str], *, options: float) -> Iterator[str]:
    """Random grants, revocations, owners and memberships. `options`: how many grants have an option that no state has."""
    everybody = [quoted(name) for name in (*ROLES, *USERS)]
    objects: list[tuple[str, str, tuple[str, ...]]] = [("database", database, ("connect", "temporary", "create"))]
    for schema in SCHEMAS:
        objects += [
            ("schema", schema, ("usage", "usage", "create")),
            *(("table", f"{schema}.{name}", TABLE) for name in ('"t/1"', "t2", "v", "m")),
            *(("table", f"{schema}.{name}", tuple(f"{p} ({c})" for p in COLUMN for c in "ab")) for name in ('"t/1"', "t2")),
            *(("sequence", f"{schema}.{name}", ("usage", "select", "update")) for name in ("q", '"t/1_a_seq"')),
            *(("type", f"{schema}.{name}", ("usage",)) for name in types),
        ]  # fmt: skip
        objects += [("routine", name, ("execute",)) for name in routine_names(schema)]
    for _ in range(changes):
        kind, name, privileges = dice.choice(objects)
        privilege, grantee = dice.choice(privileges), dice.choice([*everybody, "public"])
        match dice.randrange(10):
            case 0 | 1 | 2 | 3:
                known = (privilege.split(" ")[0], kind) in KNOWN
                passed_on = grantee != "public" and dice.random() < (0.4 if known else options)
                yield f"grant {privilege} on {kind} {name} to {grantee}{' with grant option' if passed_on else ''}"
            case 4 | 5:
                yield f"revoke {dice.choice([privilege, 'all'])} on {kind} {name} from {grantee}"
            case 6:
                owner = next(iter(everybody)) if kind == "database" and dice.random() < 0.5 else dice.choice(everybody)
                if not (name.endswith((".t2", '_seq"')) and kind in ("type", "sequence")):
                    yield f"alter {kind} {name} owner to {owner}"
            case 7 | 8:
                # In one order, so that no role is a member of itself.
                role, member = sorted(dice.sample(range(len(everybody)), 2))
                of = dice.choice([everybody[role]] * 6 + ["pg_read_all_data", "pg_write_all_data", "pg_monitor"])
                if of.startswith("pg_") or dice.random() < 0.7:
                    yield f"grant {of} to {everybody[member]}{dice.choice(['', '', ' with admin option'])}"
                else:
                    yield f"revoke {dice.choice(['', 'admin option for '])}{of} from {everybody[member]}"
            case _:
                yield f"grant usage on language plpgsql to {grantee}"


def imported(url: str, program: Program) -> tuple[State, set[str]]:
    with opened(url) as answers:
        found = read(import_document("postgresql"), answers, program)
    return found.state, set(found.by_name)


def rows(state: State) -> set[str]:
    return {f"{table}: {row}" for table in ALL_TABLES for row in getattr(state, table)}


ALLOWED = """
select 'database', r.rolname, datname, p, has_database_privilege(r.oid, o.oid, p)
from pg_roles r, pg_database o, unnest(array['connect', 'temporary', 'create']) p where datname = current_database()
union all select 'schema', r.rolname, nspname, p, has_schema_privilege(r.oid, o.oid, p)
from pg_roles r, pg_namespace o, unnest(array['usage', 'create']) p where nspname in ('s1', '%/S')
union all select 'table', r.rolname, o.oid::regclass::text, p, has_table_privilege(r.oid, o.oid, p)
from pg_roles r, pg_class o, unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger', 'select with grant option']) p
where relkind in ('r', 'v', 'm') and relnamespace in (select oid from pg_namespace where nspname in ('s1', '%/S'))
union all select 'column', r.rolname, format('%s.%s', attrelid::regclass, attname), p, has_column_privilege(r.oid, attrelid, attnum, p)
from pg_roles r, pg_attribute join pg_class o on o.oid = attrelid, unnest(array['select', 'insert', 'update', 'references']) p
where relkind in ('r', 'v', 'm') and attnum > 0 and relnamespace in (select oid from pg_namespace where nspname in ('s1', '%/S'))
union all select 'sequence', r.rolname, o.oid::regclass::text, p, has_sequence_privilege(r.oid, o.oid, p)
from pg_roles r, pg_class o, unnest(array['usage', 'select', 'update', 'usage with grant option']) p
where relkind = 'S' and relnamespace in (select oid from pg_namespace where nspname in ('s1', '%/S'))
union all select 'routine', r.rolname, o.oid::regprocedure::text, p, has_function_privilege(r.oid, o.oid, p)
from pg_roles r, pg_proc o, unnest(array['execute', 'execute with grant option']) p
where pronamespace in (select oid from pg_namespace where nspname in ('s1', '%/S'))
union all select 'type', r.rolname, o.oid::regtype::text, p, has_type_privilege(r.oid, o.oid, p)
from pg_roles r, pg_type o, unnest(array['usage', 'usage with grant option']) p
where typnamespace in (select oid from pg_namespace where nspname in ('s1', '%/S'))
union all select 'language', r.rolname, lanname, 'usage', has_language_privilege(r.oid, o.oid, 'usage') from pg_roles r, pg_language o
union all select 'role', r.rolname, o.rolname, p, pg_has_role(r.oid, o.oid, p)
from pg_roles r, pg_roles o, unnest(array['usage', 'member', 'member with admin option']) p where r.rolcanlogin
"""


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements, each for itself; the rows of the last one. What the server refuses changes nothing."""
    address = sqlalchemy.make_url(url)
    found: list[tuple[object, ...]] = []
    with psycopg.connect(
        dbname=address.database, user=address.username, host=str(address.query["host"]), autocommit=True
    ) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            found = cursor.fetchall() if cursor.description else []
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """A database of its own; its roles are dropped with it."""
    run(server, "create database world")
    yield str(sqlalchemy.make_url(server).set(database="world").render_as_string(hide_password=False))
    run(server, "drop database world with (force)")
    left = run(server, "select quote_ident(rolname) from pg_roles where oid > 16383")
    run(server, *(f"drop owned by {role}" for (role,) in left), *(f"drop role {role}" for (role,) in left))


def pushed(url: str, program: Program, state: State, **options: bool) -> PushReport:
    return push(program, state, load("postgresql", program, {}), url, pusher="postgresql", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", seeds([*range(24), *daily(100)[1:]], quick=2, full=2))
def test_what_is_imported_and_pushed_is_imported_again(url: str, program: Program, seed: int) -> None:
    dice = random.Random(seed)
    run(url, *(f"create role {quoted(u)} login {dice.choice(['', '', 'noinherit'])}" for u in USERS))
    run(url, *(f"create role {quoted(r)} {dice.choice(['', '', 'noinherit'])}" for r in ROLES))
    for schema in SCHEMAS:
        made = (f"create {routine}" for routine in ROUTINES)
        run(url, f"create schema {schema}", *(text.replace("{s}", schema) for text in (*OBJECTS, *made)))
    run(url, f"alter role {quoted(dice.choice([*USERS, *ROLES]))} superuser")
    run(url, *rights(dice, "world", 250, (*TYPES, "t2"), options=0.1))

    state, names = imported(url, program)
    allowed = run(url, ALLOWED)
    first = pushed(url, program, state, apply=True)
    assert first.desired.findings == ()
    assert first.desired.absent == {}
    assert (first.plan.grant, first.plan.revoke, first.plan.create) == (frozenset(), frozenset(), frozenset())
    others = [r for r in first.plan.foreign if not (isinstance(r, NativeGrant) and r.privilege.endswith(GRANT_OPTION))]
    assert list(map(str, others)) == []
    assert bool(first.plan.foreign) <= bool({"grant-option", "privilege-not-on-type"} & names)
    assert run(url, "select to_regclass('privtab.pushed')") == [(None,)]

    run(url, *rights(dice, "world", 120, TYPES, options=0))
    second = pushed(url, program, state, apply=True, revoke_foreign=True)
    assert second.applied
    again, names = imported(url, program)
    assert rows(again) ^ rows(state) == set()
    assert "push-record" in names
    differing = set(allowed) ^ set(run(url, ALLOWED))
    assert {row for row in differing if row[0] != "language"} == set()
    assert not pushed(url, program, again).plan.changes


def everybody(database: str, *more: tuple[str, str]) -> State:
    """The state in which PUBLIC may connect and use the schema `public`, and what else it says."""
    named = (("CONNECT", f"database:{database}"), ("USAGE", f"schema:{database}/public"), *more)
    return State(
        grants=tuple(
            Grant(grantee="group:public", effect="allow", privilege=privilege, entity=Entity.parse(entity))
            for privilege, entity in named
        )
    )


def test_what_public_may_execute_is_what_rows_say(url: str, program: Program) -> None:
    made = (
        "procedure wipe() language sql as 'select 1'",
        "function seen() returns int language sql as 'select 1'",
        "function f() returns int language sql as 'select 1'",
        "function f(int) returns int language sql as 'select 1'",
        "function \"f(x)\"() returns int language sql as 'select 1'",
        "aggregate total(int) (sfunc = int4pl, stype = int4)",
    )
    run(url, "create role ann login", *(f"create {routine}" for routine in made))
    state = everybody("world", ("EXECUTE", "function:world/public/f(integer)"))
    first = pushed(url, program, state, apply=True, revoke_foreign=True)
    assert 'REVOKE EXECUTE ON ROUTINE public."f(x)"() FROM PUBLIC' in first.requests
    asked = "select oid::regprocedure::text from pg_proc where pronamespace = 'public'::regnamespace and has_function_privilege('ann', oid, 'execute')"
    assert run(url, asked) == [("f(integer)",)]
    assert not pushed(url, program, state).drifted
    run(url, "grant execute on procedure wipe() to ann")
    assert list(map(str, pushed(url, program, state).plan.foreign)) == ["EXECUTE on function public/wipe to login ann"]


@pytest.mark.parametrize(
    ("made", "rows", "problem"),
    [
        ("create role ann login noinherit", {"assignments": (Assignment(principal="user:ann", role="hr"),)}, "login ann does not inherit what role hr holds"),
        ("create role ann login", {"members": (("ann", Entity("role", "hr")),)}, "login ann would hold role hr, and not merely switch to it"),
        ("create role ann login", {"grants": (Grant(grantee="user:ann", effect="allow", privilege="ADMIN", entity=Entity("role", "hr")),)}, "login ann would hold role hr beside the right to grant it"),
    ],
)  # fmt: skip
def test_a_membership_that_the_server_would_understand_otherwise_is_refused(
    url: str, program: Program, made: str, rows: dict[str, Any], problem: str
) -> None:
    run(url, "create role hr", made)
    for apply in (False, True):
        with pytest.raises(PushError, match=problem):
            pushed(url, program, State(**rows), apply=apply)
    assert run(url, "select pg_has_role('ann', 'hr', 'member')") == [(False,)]


def test_the_record_of_pushes_is_no_part_of_an_import_by_anybody(url: str, program: Program) -> None:
    """Ann may not use the schema of the record; and a type is named by its schema, whatever the search path."""
    run(url, "create role ann login", "create type public.t as enum ('x')", "create table public.private (a int)")
    run(url, *(f"create function f({argument}) returns int language sql as 'select 1'" for argument in ("int", "t")))
    before, _ = imported(url, program)
    execute = Grant(
        grantee="user:ann",
        effect="allow",
        privilege="EXECUTE",
        entity=Entity.parse("function:world/public/f(public.t)"),
    )
    state = replace(before, grants=(*before.grants, execute))
    assert pushed(url, program, state, apply=True).requests == ('GRANT EXECUTE ON ROUTINE public.f(public.t) TO "ann"',)
    run(url, "alter database world set search_path = public")
    for user in ("postgres", "ann"):
        address = sqlalchemy.make_url(url).set(username=user).render_as_string(hide_password=False)
        after, names = imported(address, program)
        assert rows(after) == rows(state)
        assert "push-record" in names


def test_a_role_whose_name_would_be_anothers_in_a_state_is_not_pushed(url: str, program: Program) -> None:
    """In a state, `%2A` is the role that is called `*`."""
    run(url, "create role ann login", 'create role "*"', 'create role "%2A"', 'grant "%2A" to ann', "create schema s")
    run(url, 'grant usage on schema s to "%2A"')
    state, names = imported(url, program)
    assert "role-name" in names
    assert not pushed(url, program, state).plan.changes


def test_whoever_becomes_a_login_gets_no_more_than_rows_say(url: str, program: Program) -> None:
    """Cy holds what ann is: a membership of ann would be that of cy, too, unless the state says so."""
    run(url, "create role ann login noinherit", "create role cy login", "create role hr")
    held = (Assignment(principal="user:ann", role="ann"), Assignment(principal="user:cy", role="ann"))
    switches = ("ann", Entity("role", "hr"))
    with pytest.raises(PushError, match="whoever is login ann could switch to role hr, too"):
        pushed(url, program, State(assignments=held, members=(switches,)))
    stated = State(assignments=held, members=(switches, ("cy", Entity("role", "hr"))))
    assert pushed(url, program, stated, apply=True).requests == ('GRANT "ann" TO "cy"', 'GRANT "hr" TO "ann"')
    assert not pushed(url, program, stated).plan.changes
    assert rows(imported(url, program)[0]) >= {row for row in rows(stated) if row.startswith("members:")}
