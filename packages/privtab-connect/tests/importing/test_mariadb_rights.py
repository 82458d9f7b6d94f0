"""What is imported from a real MariaDB and decided by the shipped table is what the server itself does."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping

import pytest
import sqlalchemy
from mariadb_server import mariadb
from sqlalchemy.exc import DBAPIError

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import ImportResult, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mariadb-10-11")]

REFUSED = {1044, 1142, 1143, 1227, 1370}
USERS, ROLES = ["ann", "bob", "cy", "dan"], ["eng", "hr", "ops"]
DATABASES, TABLES, COLUMNS = ["d1", "d_2", "dx2"], ["t1", "t2"], ["a", "b"]
STATEMENTS: Mapping[str, Mapping[str, str]] = {
    "server": {"create_user": "create user if not exists probe", "show_engine_status": "show engine innodb status"},
    "database": {"create_table": "create table {0}.probe (plain int)"},
    "column": {
        "select": "select {2} from {0}.{1}",
        "insert": "insert into {0}.{1} ({2}) values (1)",
        "update": "update {0}.{1} set {2} = 1",
    },
    "function": {"execute": "select {0}.{1}()"},
    "table": {
        "select": "select * from {0}.{1}",
        "insert": "insert into {0}.{1} (a, b) values (1, 1)",
        "update": "update {0}.{1} set a = 1, b = 1",
        "delete": "delete from {0}.{1}",
        "truncate": "truncate {0}.{1}",
        "alter": "alter table {0}.{1} comment 'asked'",
        "create_index": "create index probe on {0}.{1} (a)",
        "create_trigger": "create trigger {0}.probe before insert on {0}.{1} for each row set @asked = 1",
        "grant_select": "grant select on {0}.{1} to nobody",
        "drop": "drop table {0}.{1}",
    },
}
"""How each operation is asked, by its type; `{0}` and so on are the names of the object below the server."""
UNDONE = {
    "create_user": "drop user probe",
    "create_table": "drop table {0}.probe",
    "create_index": "drop index probe on {0}.{1}",
    "create_trigger": "drop trigger {0}.probe",
    "drop": "create table {0}.{1} (a int, b int)",
}
OBJECTS = [
    ("server", ()),
    *(("database", (d,)) for d in DATABASES),
    *(("column", (d, t, c)) for d in DATABASES for t in TABLES for c in COLUMNS),
    *(("function", (d, "f")) for d in DATABASES),
    *(("table", (d, t)) for d in DATABASES for t in TABLES),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with mariadb() as url:
        yield url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """The server with databases, accounts and roles, all of which are dropped afterwards."""
    made = [f"create user {user}" for user in USERS] + [f"create role {role}" for role in [*ROLES, "nobody"]]
    for database in DATABASES:
        made += [f"create database {database}", *(f"create table {database}.{t} (a int, b int)" for t in TABLES)]
        made.append(f"create function {database}.f() returns int deterministic return 1")
    executed(server, *made)
    yield server
    executed(
        server,
        *(f"drop user {user}" for user in USERS),
        *(f"drop role {role}" for role in [*ROLES, "nobody"]),
        "grant usage on *.* to public",
        "revoke all privileges, grant option from public",
        *(f"drop database {database}" for database in DATABASES),
    )


def executed(url: str, *statements: str) -> None:
    with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
        for statement in statements:
            connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        connection.commit()


def imported(url: str) -> tuple[ImportResult, Reference]:
    program = load_program("mariadb/10.11")
    with opened(url) as answers:
        found = run(load("mariadb"), answers, program, values={"server": "main"})
    return found, Reference(program, found.state)


def rights(seed: int, patterns: Collection[str]) -> list[str]:
    """Statements that grant random privileges on every level, roles to accounts and to roles, and one of them as the default.

    `patterns`: of databases. Roles get privileges on them only where there are several.
    """
    dice = random.Random(seed)
    statements = []
    for place, role in enumerate(ROLES):
        statements += [f"grant {other} to {role}" for other in ROLES[:place] if dice.random() < 0.5]
    for user in USERS[:3]:
        held = dice.sample(ROLES, 2)
        statements += [f"grant {role} to {user}" for role in held]
        statements += [f"set default role {held[0]} for {user}"] * (dice.random() < 0.8)
    on = ["select", "insert", "update", "delete", "create", "drop", "index", "alter", "trigger", "grant option"]
    levels = [
        *[("*.*", [*on, "create user", "process"])] * 4,
        *[(f"{d}.*", [*on, "execute"]) for d in ("`d1`", "`d\\_2`", *patterns) for _ in range(4)],
        *[(f"{d}.{t}", on) for d in DATABASES for t in TABLES for _ in range(4)],
        *[(f"{d}.{t}", [f"{p} ({c})" for p in on[:3] for c in COLUMNS]) for d in DATABASES for t in TABLES for _ in "ab"],
        *[(f"function {d}.f", ["execute"]) for d in DATABASES],
    ]  # fmt: skip
    for level, privileges in levels:
        grantee = dice.choice([*USERS, "public", *(() if [level] == [f"{p}.*" for p in patterns] else ROLES)])
        statements.append(f"grant {dice.choice(privileges)} on {level} to {grantee}")
    return [
        *statements,
        "flush privileges",
    ]  # without it, privileges of a role that a role holds may come into force later


def allows(url: str, connection: sqlalchemy.Connection, operation: str, statement: str, names: tuple[str, ...]) -> bool:
    """Whether the server lets an account do it, which is undone."""
    try:
        connection.exec_driver_sql(statement.format(*names))
    except DBAPIError as error:
        if error.orig is None or error.orig.args[0] not in REFUSED:
            raise
        return False
    if operation in UNDONE:
        executed(url, UNDONE[operation].format(*names))
    return True


@pytest.mark.parametrize(("seed", "patterns"), [(0, ["`d_2`"]), (1, ["`d_2`"]), (2, ["`d_2`", "`d%`"])])
def test_what_is_imported_from_mariadb_decides_as_the_server_does(url: str, seed: int, patterns: list[str]) -> None:
    executed(url, *rights(seed, patterns))
    found, reference = imported(url)
    assert not found.refused(strict=False, allow_partial=False)
    assert {name for name, (item, _) in found.by_name.items() if "root" not in item.what} <= {
        "account", "role-not-default", "database-pattern", "unknown-privilege", "privilege-not-on-type",
    }  # fmt: skip

    def decided(user: str, operation: str, type_: str, names: tuple[str, ...]) -> bool:
        resource = Entity(type_, "/".join(("main", *names)))
        if reference.decide(Request(user=user, action=operation, resource=resource)).allowed:
            return True
        each = type_ == "table" and operation in STATEMENTS["column"]
        return each and all(decided(user, operation, "column", (*names, column)) for column in COLUMNS)

    wrong: list[str] = []
    answers: list[bool] = []
    for user in USERS:
        address = sqlalchemy.make_url(url).set(username=user)
        with sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool).connect() as connection:
            for type_, names in OBJECTS:
                for operation, statement in STATEMENTS[type_].items():
                    answer = allows(url, connection, operation, statement, names)
                    answers.append(answer)
                    lost = answer and len(patterns) > 1  # by several patterns that fit, as the report says
                    if not lost and decided(user, operation, type_, names) != answer:
                        wrong.append(f"{user} {operation} {type_} {names}: the server says {answer}")
    assert wrong == []
    assert min(answers.count(True), answers.count(False)) > 80


BESIDE_GRANTS = """
create view d1.v as select 1 as one; create sql security invoker view d1.w as select 1 as one
create procedure d1.p() select 1; grant execute on procedure d1.p to ann; grant reload on *.* to bob
grant eng to ann; grant proxy on bob to ann; create user ann@localhost; alter user dan account lock; grant select on `nowhere%`.* to ann
"""
LISTED = {
    "security-invoker-view": ("view d1.w asks for the rights of its caller on what it reads", True),
    "procedure-grants": ("`EXECUTE` on procedure `d1/p` for `user:ann`", False),
    "role-not-default": ("`ann` of host `%` may switch to `eng`", False),
    "several-hosts": ("`ann` has accounts of several hosts, of which the server takes the grants together", False),
    "proxy": ("`ann` may act as `bob`", False),
    "account": ("what the locked account `dan` of host `%` holds", False),
    "database-pattern": ("`SELECT` on databases like `nowhere%` for `user:ann`", False),
}


def test_an_account_that_does_not_see_everything_stops_the_import(url: str) -> None:
    executed(url, "grant select on mysql.* to bob", "grant select on *.* to cy")
    executed(url, "create sql security invoker view d1.w as select 1 as one")
    for user, expected in (("bob", {"hidden"}), ("cy", {"security-invoker-view"})):
        address = sqlalchemy.make_url(url).set(username=user).render_as_string(hide_password=False)
        found, _ = imported(address)
        assert {item.name for item in found.refused(strict=False, allow_partial=False)} == expected


def test_what_a_state_cannot_say_is_listed(url: str) -> None:
    executed(url, *filter(None, map(str.strip, BESIDE_GRANTS.replace("\n", ";").split(";"))))
    try:
        found, _ = imported(url)
        assert set(LISTED.items()) <= {(item.name, (item.what, item.denies)) for item in found.not_taken}
        assert {item.name for item in found.refused(strict=False, allow_partial=False)} == {"security-invoker-view"}
        (reload,) = (item for item in found.not_taken if "grantee user:bob" in item.what)
        assert reload.why == "unknown privilege `RELOAD`"
    finally:
        executed(url, "drop user ann@localhost")
