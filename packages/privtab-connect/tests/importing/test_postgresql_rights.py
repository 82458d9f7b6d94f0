"""What is imported from a real server and decided by the shipped table is what the server itself says."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
import sqlalchemy
from checkout import ROOT
from postgresql_server import postgresql

from privtab.base import Entity, Request, encode_name
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import ImportResult, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]

POLICY = ROOT / "policy_src" / "postgresql" / "15.yaml"
USE = "has_schema_privilege(u.oid, n.oid, 'usage')"


def owns(owner: str) -> str:
    return f"(u.rolsuper or pg_has_role(u.oid, {owner}, 'usage'))"


def has(kind: str, privilege: str, of: str = "o.oid") -> str:
    return f"has_{kind}_privilege(u.oid, {of}, '{privilege}')"


POSTGRESQL: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "database": (
        "pg_database o where datname = current_database()",
        "datname",
        {
            "connect": has("database", "connect"),
            "create_schema": has("database", "create"),
            "create_temporary_table": has("database", "temporary"),
            "alter": owns("datdba"),
            "grant_connect": has("database", "connect with grant option"),
        },
    ),
    "schema": (
        "pg_namespace n join pg_database d on datname = current_database() where nspname ~ '^[s%]'",
        "current_database(), nspname",
        {
            "use": USE,
            "create_table": has("schema", "create", "n.oid"),
            "comment": owns("nspowner"),
            "drop": owns("nspowner"),
            "rename": f"{owns('nspowner')} and {has('database', 'create', 'd.oid')}",
            "grant_usage": has("schema", "usage with grant option", "n.oid"),
        },
    ),
    "table": (
        "pg_class o join pg_namespace n on n.oid = relnamespace where relkind in ('r', 'v') and nspname ~ '^[s%]'",
        "current_database(), nspname, relname",
        {
            **{
                name: f"{USE} and {has('table', name)}" for name in ("select", "insert", "update", "delete", "truncate")
            },
            **{f"{name}_any": f"{USE} and {has('any_column', name)}" for name in ("select", "insert")},
            "reference": f"{USE} and {has('table', 'references')}",
            "create_trigger": f"{USE} and {has('table', 'trigger')}",
            "alter": f"{USE} and {owns('relowner')}",
            "drop": f"{USE} and ({owns('relowner')} or {owns('nspowner')})",
            "grant_select": f"{USE} and {has('table', 'select with grant option')}",
        },
    ),
    "column": (
        "pg_attribute join pg_class o on o.oid = attrelid join pg_namespace n on n.oid = relnamespace where relkind in ('r', 'v') and nspname ~ '^[s%]' and attnum > 0",
        "current_database(), nspname, relname, attname",
        {
            **{
                name.rstrip("s"): f"{USE} and has_column_privilege(u.oid, o.oid, attnum, '{name}')"
                for name in ("select", "insert", "update", "references")
            },
            "grant_select": f"{USE} and has_column_privilege(u.oid, o.oid, attnum, 'select with grant option')",
        },
    ),
    "sequence": (
        "pg_class o join pg_namespace n on n.oid = relnamespace where relkind = 'S' and nspname ~ '^[s%]'",
        "current_database(), nspname, relname",
        {
            "nextval": f"{USE} and ({has('sequence', 'usage')} or {has('sequence', 'update')})",
            "currval": f"{USE} and ({has('sequence', 'usage')} or {has('sequence', 'select')})",
            "setval": f"{USE} and {has('sequence', 'update')}",
            "grant_usage": f"{USE} and {has('sequence', 'usage with grant option')}",
        },
    ),
    "function": (
        "pg_proc o join pg_namespace n on n.oid = pronamespace where nspname ~ '^[s%]'",
        "current_database(), nspname, case proname when 'f' then 'f' else format('g(%s)', pg_get_function_identity_arguments(o.oid)) end",
        {
            "execute": f"{USE} and {has('function', 'execute')}",
            "grant_execute": f"{USE} and {has('function', 'execute with grant option')}",
        },
    ),
    "type": (
        "pg_type o join pg_namespace n on n.oid = typnamespace where typtype in ('d', 'e') and nspname ~ '^[s%]'",
        "current_database(), nspname, typname",
        {
            "use": f"{USE} and {has('type', 'usage')} and has_database_privilege(u.oid, current_database(), 'temporary')",
            "grant_usage": f"{USE} and {has('type', 'usage with grant option')}",
        },
    ),
    "role": (
        "pg_roles o where o.oid <> u.oid and exists (select from pg_auth_members where roleid = o.oid)",
        "o.rolname",
        {
            "set": "pg_has_role(u.oid, o.oid, 'member')",
            "grant": "pg_has_role(u.oid, o.oid, 'member with admin option')",
        },
    ),
}
"""By type: what its entities are, their paths, and what each operation takes. The caller is `u`."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


def executed(url: str, *statements: str) -> None:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execution_options(no_parameters=True).exec_driver_sql(statement)


@pytest.fixture
def database(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own; its roles are dropped with it."""
    name = f"d{abs(hash(request.node.name))}"
    executed(server, f"create database {name}")
    yield str(sqlalchemy.make_url(server).set(database=name).render_as_string(hide_password=False))
    executed(server, f"drop database {name} with (force)")
    with sqlalchemy.create_engine(server, poolclass=sqlalchemy.NullPool).connect() as connection:
        left = connection.exec_driver_sql("select quote_ident(rolname) from pg_roles where oid > 16383").all()
    executed(server, *(text for (role,) in left for text in (f"drop owned by {role}", f"drop role {role}")))


def imported(url: str, policy: Path) -> tuple[ImportResult, Reference]:
    program = load_program(policy)
    with opened(url) as answers:
        found = run(load("postgresql"), answers, program)
    return found, Reference(program, found.state)


def disagreements(url: str, reference: Reference, types: Collection[str]) -> tuple[list[bool], list[str]]:
    """The answers of the server, and those that are other ones by the table."""
    asked, wrong = [], []
    with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
        for type_ in types:
            source, path, operations = POSTGRESQL[type_]
            columns = f"u.rolname, array[{path}]::text[], {', '.join(operations.values())}"
            rows = connection.exec_driver_sql(
                f"select {columns} from pg_roles u, {source} and u.rolcanlogin".replace("%", "%%")  # noqa: S608
            )
            for user, names, *answers in rows:
                resource = Entity(type_, "/".join(map(encode_name, names)))
                for operation, answer in zip(operations, answers, strict=True):
                    decision = reference.decide(Request(user=user, action=operation, resource=resource))
                    asked.append(answer)
                    if decision.allowed != answer:
                        wrong.append(f"{user} {operation} {resource}: the server says {answer}")
    return asked, wrong


def world(seed: int) -> list[str]:
    """Statements that make roles, objects and random rights of every kind."""
    dice = random.Random(seed)
    users, roles = ["ann", '"o\'neil/1"', "cy", "dan"], ["eng", "hr", "ops", '"a%b"']
    everybody = [*roles, *users]
    made = [
        *(f"create role {u} login {dice.choice(['', '', 'noinherit'])}" for u in users),
        *(f"create role {r} {dice.choice(['', '', 'noinherit'])}" for r in roles),
        f"grant pg_read_all_data to {dice.choice(everybody)}",
        f"grant pg_write_all_data to {dice.choice(everybody)}",
    ]
    chain = dice.sample(everybody, 8)
    made += [
        f"grant {role} to {member}{dice.choice(['', '', ' with admin option'])}"
        for place, member in enumerate(chain) for role in chain[:place] if dice.random() < 0.3
    ]  # fmt: skip
    objects = [("database", "{database}", ["connect", "temporary", "create"])]
    for schema in ("s1", '"%/s"'):
        made += [
            f"create schema {schema}",
            f'create table {schema}."t/1" (a int, b int)',
            f"create table {schema}.t2 (a int, b int)",
            f"create view {schema}.v as select 1 as a",
            f"create sequence {schema}.q",
            f"create function {schema}.f() returns int language sql as 'select 1'",
            f"create function {schema}.g(x int) returns int language sql as 'select 1'",
            f"create function {schema}.g(x text, int[]) returns int language sql as 'select 1'",
            f"create domain {schema}.d as int",
            f"create type {schema}.e as enum ('x')",
        ]
        objects += [
            ("schema", schema, [*["usage"] * 4, "create"]),
            *(("table", f"{schema}.{name}", ["select", "insert", "update", "delete", "truncate", "references", "trigger"])
              for name in ('"t/1"', "t2", "v")),
            *(("table", f"{schema}.{name}", [f"{p} ({c})" for p in ("select", "insert", "update", "references") for c in "ab"])
              for name in ('"t/1"', "t2")),
            ("sequence", f"{schema}.q", ["usage", "select", "update"]),
            *(("function", f"{schema}.{name}", ["execute"]) for name in ("f()", "g(int)", "g(text, int[])")),
            *(("type", f"{schema}.{name}", ["usage"]) for name in "de"),
        ]  # fmt: skip
    for kind, name, privileges in objects:
        owner = dice.choice(everybody)
        altered = {"type": "domain"}.get(kind, kind) if name.endswith(".d") else "view" if name.endswith(".v") else kind
        if dice.random() < 0.6:
            made.append(f"alter {altered} {name} owner to {owner}")
        if dice.random() < 0.5:
            made.append(
                f"revoke {dice.choice(['all', privileges[0]])} on {kind} {name} from {dice.choice([owner, 'public'])}"
            )
        for privilege in privileges:
            for _ in range(dice.randrange(4)):
                grantee = dice.choice([*everybody, "public"])
                option = " with grant option" if grantee != "public" and dice.random() < 0.3 else ""
                made.append(f"grant {privilege} on {kind} {name} to {grantee}{option}")
    return made


WITHOUT_ROLES = {"groups": "  hierarchy: groups\n", "flat": ""}


@pytest.mark.parametrize(("seed", "chains"), [*((seed, "roles") for seed in range(4)), (4, "groups"), (5, "flat")])
def test_what_is_imported_from_postgresql_decides_as_the_server_does(
    database: str, tmp_path: Path, seed: int, chains: str
) -> None:
    executed(
        database, *(text.replace("{database}", str(sqlalchemy.make_url(database).database)) for text in world(seed))
    )
    policy, types = POLICY, set(POSTGRESQL)
    if chains != "roles":
        text = POLICY.read_text(encoding="utf-8").replace("  hierarchy: roles\n", WITHOUT_ROLES[chains])
        policy, types = tmp_path / "15.yaml", types - {"role"}
        policy.write_text(text.replace("[user, role]", "[user, group]"), encoding="utf-8")
    found, reference = imported(database, policy)
    assert not found.refused(strict=False, allow_partial=False)
    answers, wrong = disagreements(database, reference, types)
    assert wrong == []
    assert min(answers.count(True), answers.count(False)) > 200


WHOLE_ROWS = {
    "select": "select * from {0}",
    "insert": "insert into {0} (a, b) values (1, 1)",
    "update": "update {0} set a = 1, b = 1",
}
NO_COLUMNS = {"select_any": "select from {0}", "insert_any": "insert into {0} default values"}


def test_a_statement_takes_a_privilege_on_the_table_or_on_each_column_that_it_names(database: str) -> None:
    name = str(sqlalchemy.make_url(database).database)
    executed(database, *(text.replace("{database}", name) for text in world(6)))
    executed(
        database,
        "create role eve login",
        "grant usage on schema s1 to eve",
        "revoke all on s1.t2 from public",
        "grant select (a), update (a, b) on s1.t2 to eve",
        "grant select (b) on s1.t2 to public",
    )
    _, reference = imported(database, POLICY)

    def decided(user: str, action: str, type_: str, *names: str) -> bool:
        resource = Entity(type_, "/".join(map(encode_name, (name, *names))))
        return reference.decide(Request(user=user, action=action, resource=resource)).allowed

    answers = {}
    with sqlalchemy.create_engine(database, poolclass=sqlalchemy.NullPool).connect() as connection:
        for user in ("ann", "o'neil/1", "cy", "dan", "eve"):
            for schema, table in (("s1", "t/1"), ("s1", "t2"), ("%/s", "t/1"), ("%/s", "t2")):
                for action, statement in {**WHOLE_ROWS, **NO_COLUMNS}.items():
                    quoted = statement.format(f'"{schema}"."{table}"').replace("%", "%%")
                    try:
                        connection.exec_driver_sql(f'set local session authorization "{user}"')
                        connection.exec_driver_sql(quoted)
                        answer = True
                    except sqlalchemy.exc.ProgrammingError as error:
                        assert "permission denied" in str(error.orig)  # noqa: PT017
                        answer = False
                    connection.rollback()
                    answers[user, action, schema, table] = answer
                    expected = decided(user, action, "table", schema, table) or (
                        action in WHOLE_ROWS and all(decided(user, action, "column", schema, table, c) for c in "ab")
                    )
                    assert expected == answer, (user, action, schema, table)
    assert answers["eve", "select", "s1", "t2"]
    assert not decided("eve", "select", "table", "s1", "t2"), "granted by columns alone"
    assert not all(answers.values())


BESIDE_GRANTS = """
create role ann login; create role bob login noinherit; create role hr; create role dba superuser; create role "group:x" login createrole;
grant hr to ann with admin option; grant hr to bob; grant dba to ann; grant pg_monitor to hr
create schema s1; create table s1.t (a int, b int); create sequence s1.q; create view s1.v with (security_invoker) as select 1 as a
create function s1.f() returns int language sql as 'select 1'
grant usage on schema s1 to hr with grant option
grant select (a), update (b) on s1.t to hr; grant usage on sequence s1.q to bob
alter table s1.t enable row level security; create policy mine on s1.t using (a = 1)
alter default privileges in schema s1 grant select on tables to bob
grant usage on language plpgsql to bob; grant set on parameter log_statement to bob
grant execute on function pg_read_file(text) to bob; grant select on pg_authid to bob
"""
NARROW = """\
privtab: 1
system: narrow
version: "1"
entities: {database: {schema: {table: {}}}}
privileges: {USAGE: {on: [schema]}, SELECT: {on: [table]}}
semantics: {everyone: public, owner: {kinds: [user, group]}}
tables: {table: {select: SELECT (table) and USAGE (schema)}}
"""
ALWAYS = {
    "row-level-security": ("which rows of s1.t a caller sees", 1, True),
    "security-invoker-view": ("view s1.v asks for the rights of its caller on what it reads", 1, True),
    "default-privileges": ("SELECT for bob on what postgres creates", 1, False),
    "role-attribute": ("CREATEROLE of group:x", 1, False),
    "role-name": ("what `group:x` holds: a state would take its name for another principal", 1, False),
    "superuser-role": ("`dba` makes whoever switches to it a superuser", 1, False),
    "predefined-role": ("what the server lets hr do as a member of pg_monitor", 1, False),
    "other-object": ("USAGE on language plpgsql", 3, False),
    "system-schema": ("the rights on pg_authid, which are not those of a new database", 2, False),
}
OF_A_NARROW_POLICY = {
    "unknown-privilege": (
        "grants: grantee group:public, effect allow, privilege CONNECT, entity database:database",
        19,
        False,
    ),
    "column-grants": ("`SELECT` on column `database/s1/t/a` for `hr`", 2, False),
    "sequence-grants": ("`USAGE` on sequence `database/s1/q` for `bob`", 4, False),
    "function-grants": ("`EXECUTE` on function `database/s1/f` for `public`", 2, False),
    "noinherit": ("`bob` may switch to `hr` without inheriting from it", 5, False),
    "admin-option": ("the right of `ann` to grant `hr`", 1, False),
    "grant-option": ("the right of `hr` to grant `USAGE` on schema `database/s1`", 1, False),
}


def test_what_a_state_cannot_say_is_listed(database: str, tmp_path: Path) -> None:
    executed(database, *filter(None, map(str.strip, BESIDE_GRANTS.replace("\n", ";").split(";"))))
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(NARROW, encoding="utf-8")
    name = str(sqlalchemy.make_url(database).database)
    for user, policy, more in (("postgres", POLICY, {}), ("ann", POLICY, {}), ("ann", narrow, OF_A_NARROW_POLICY)):
        address = sqlalchemy.make_url(database).set(username=user).render_as_string(hide_password=False)
        found, _ = imported(address, policy)
        listed = {n: (i.what.replace(name, "database"), c, i.denies) for n, (i, c) in found.by_name.items()}
        assert listed == {**ALWAYS, **more}
        assert {item.name for item in found.refused(strict=False, allow_partial=False)} == {
            "row-level-security",
            "security-invoker-view",
        }


def test_an_owner_who_lacks_what_owners_hold_by_the_policy_stops_the_import(database: str, tmp_path: Path) -> None:
    executed(database, "create role ann login", "create schema s1 authorization ann", "create table s1.t (a int)")
    executed(database, "alter table s1.t owner to ann", "revoke select, insert on s1.t from ann")
    policy = tmp_path / "narrow.yaml"
    policy.write_text(NARROW.replace("[user, group]}", "[user, group], holds: [SELECT, USAGE]}"), encoding="utf-8")
    found, _ = imported(database, policy)
    (item,) = found.refused(strict=False, allow_partial=False)
    assert item.what.startswith("the owner `ann` of table")
    assert "`SELECT`" in item.what
