"""Databases, accounts and roles of a real MariaDB, random rights on them, and what the server then lets each account do."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

import sqlalchemy
from sqlalchemy.exc import DBAPIError

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import ImportResult, run

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
    "grant_select": "revoke select on {0}.{1} from nobody",
    "drop": "create table {0}.{1} (a int, b int)",
}
OBJECTS = [
    ("server", ()),
    *(("database", (d,)) for d in DATABASES),
    *(("column", (d, t, c)) for d in DATABASES for t in TABLES for c in COLUMNS),
    *(("function", (d, "f")) for d in DATABASES),
    *(("table", (d, t)) for d in DATABASES for t in TABLES),
]


@contextmanager
def world(server: str) -> Iterator[None]:
    """Databases, accounts and roles, all of which are dropped afterwards."""
    executed(
        server, *(f"create user {user}" for user in USERS), *(f"create role {role}" for role in [*ROLES, "nobody"])
    )
    for database in DATABASES:
        made = [f"create database {database}", *(f"create table {database}.{t} (a int, b int)" for t in TABLES)]
        executed(server, *made, f"create function {database}.f() returns int deterministic return 1")
    yield
    executed(server, *(f"drop database {database}" for database in DATABASES), "drop database if exists privtab")
    executed(server, "grant usage on *.* to public", "revoke all privileges, grant option from public")
    executed(server, *(f"drop user {user}" for user in USERS), *(f"drop role {role}" for role in [*ROLES, "nobody"]))
    with sqlalchemy.create_engine(server, poolclass=sqlalchemy.NullPool).connect() as connection:
        left = connection.exec_driver_sql("select user from mysql.global_priv where user like 'roles of %%'").all()
    executed(server, *(f"drop role `{role}`" for (role,) in left))


def executed(url: str, *statements: str, refused: bool = False) -> None:
    """Run statements as root. `refused`: the server may refuse them."""
    with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
        for statement in statements:
            with suppress(DBAPIError) if refused else nullcontext():
                connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        connection.commit()


def imported(url: str) -> tuple[ImportResult, Reference]:
    program = load_program("mariadb/10.11")
    with opened(url) as answers:
        found = run(load("mariadb"), answers, program, values={"server": "main"})
    return found, Reference(program, found.state)


def rights(seed: int, patterns: Collection[str]) -> list[str]:
    """Statements that grant random privileges on every level, roles to accounts and to roles, and one of them as the default.

    `patterns`: of databases.
    """
    dice = random.Random(seed)
    statements = []
    for place, role in enumerate(ROLES):
        statements += [f"grant {other} to {role}" for other in ROLES[:place] if dice.random() < 0.5]
    for user in USERS[:3]:
        held = dice.sample(ROLES, 2)
        statements += [f"grant {role} to {user}" for role in held]
        statements += [f"set default role {dice.choice(held)} for {user}"] * (dice.random() < 0.8)
    on = ["select", "insert", "update", "delete", "create", "drop", "index", "alter", "trigger", "grant option"]
    levels = [
        *[("*.*", [*on, "create user", "process"])] * 4,
        *[(f"{d}.*", [*on, "execute"]) for d in ("`d1`", "`d\\_2`", *patterns) for _ in range(4)],
        *[(f"{d}.{t}", on) for d in DATABASES for t in TABLES for _ in range(4)],
        *[(f"{d}.{t}", [f"{p} ({c})" for p in on[:3] for c in COLUMNS]) for d in DATABASES for t in TABLES for _ in "ab"],
        *[(f"function {d}.f", ["execute"]) for d in DATABASES],
    ]  # fmt: skip
    for level, privileges in levels:
        grantee = dice.choice([*USERS, *ROLES, "public"])
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


def answers(url: str) -> dict[tuple[str, str, str, tuple[str, ...]], bool]:
    """Whether the server lets each account do each operation: by user, operation, type and names."""
    found = {}
    for user in USERS:
        address = sqlalchemy.make_url(url).set(username=user)
        with sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool).connect() as connection:
            for type_, names in OBJECTS:
                for operation, statement in STATEMENTS[type_].items():
                    answer = allows(url, connection, operation, statement, names)
                    found[user, operation, type_, names] = answer
    return found


def decides(reference: Reference, user: str, operation: str, type_: str, names: tuple[str, ...]) -> bool:
    """Whether a state lets an account do it: what is about a table may be so for each of its columns."""
    resource = Entity(type_, "/".join(("main", *names)))
    if reference.decide(Request(user=user, action=operation, resource=resource)).allowed:
        return True
    each = type_ == "table" and operation in STATEMENTS["column"]
    return each and all(decides(reference, user, operation, "column", (*names, column)) for column in COLUMNS)
