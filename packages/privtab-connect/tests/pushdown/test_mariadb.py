"""After a push, logins of a real MariaDB can do what the policy allows, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql  # type: ignore[import-untyped]
import pytest
import sqlalchemy
from pushed_lake import LAKE, MAPPING, SCHEMAS, TABLES, USERS, entity, random_state
from seeds import seeds

from privtab.base import Request
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_connect.errors import PushError
from privtab_connect.pushdown.document import MappingDocument, load
from privtab_connect.pushdown.rights import Account, NativeGrant, Object
from privtab_connect.pushdown.run import PushReport, push
from privtab_connect.targets.mariadb import TRAITS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mariadb-10-11")]

ORDERS = entity("hive", "sales", "orders")
REFUSED = {1044, 1142, 1143}
"""Access denied: to a database, a table, a column."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The lake without USE, which MariaDB has nothing for."""
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(LAKE.replace("USE (schema) and ", ""), encoding="utf-8")
    return load_program(path)


@pytest.fixture(scope="module")
def document(program: Program, tmp_path_factory: pytest.TempPathFactory) -> MappingDocument:
    path: Path = tmp_path_factory.mktemp("mapping") / "mapping.yaml"
    changes = {
        "target: postgresql": "target: mariadb",
        "objects: {schema: schema,": "objects: {schema: database,",
        "  USE: {schema: USAGE}\n": "",
        "SELECT: {table: SELECT}": "SELECT: {schema: SELECT, table: SELECT}",
        "MODIFY: {table: [INSERT, UPDATE]}": "MODIFY: {schema: [INSERT, UPDATE], table: [INSERT, UPDATE]}",
        "owners: {table: []}\n": "",
        "  privileges: {": "  privileges: {USE: databases are used without, ",
        "schema: USAGE, ": "",
    }
    text = MAPPING
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return load(str(path), program, {"catalog": "hive"})


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.fixture
def url(mariadb_address: str) -> Iterator[str]:
    """The server with the databases and the logins; everything is dropped afterwards."""
    run(mariadb_address, *(f"create user {quoted(user)}" for user in USERS))
    for schema in SCHEMAS:
        run(mariadb_address, f"create database {quoted(schema)}")
        for table in TABLES:
            run(mariadb_address, f"create table {quoted(schema)}.{quoted(table)} (plain int, other int)")
    yield mariadb_address
    run(mariadb_address, *(f"drop database if exists {quoted(schema)}" for schema in (*SCHEMAS, "hXr", "privtab")))
    for name, host, is_role in run(
        mariadb_address, "select user, host, json_value(priv, '$.is_role') from mysql.global_priv where user <> 'root'"
    ):
        who = f"role {quoted(str(name))}" if is_role else f"user {quoted(str(name))}@{quoted(str(host))}"
        run(mariadb_address, f"drop {who}")


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement, as root."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = None
        for statement in statements:
            found = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        return [tuple(row) for row in found.all()] if found is not None and found.returns_rows else []


def tries(url: str, user: str, statement: str) -> bool:
    """Whether a login of its own may run a statement."""
    socket = str(sqlalchemy.make_url(url).query["unix_socket"])
    with pymysql.connect(user=user, unix_socket=socket) as connection:
        try:
            connection.cursor().execute(statement)
        except pymysql.err.MySQLError as error:
            if error.args[0] in REFUSED:
                return False
            raise
        finally:
            connection.rollback()
    return True


Pusher = Callable[..., PushReport]


@pytest.fixture
def pushes(url: str, program: Program, document: MappingDocument) -> Pusher:
    def call(state: State, **options: object) -> PushReport:
        options = {"pusher": "lake", "expand": True, "apply": True, **options}
        return push(program, state, document, url, **options)  # type: ignore[arg-type]

    return call


@pytest.mark.parametrize("seed", seeds(range(6), quick=1, full=1))
def test_logins_can_do_what_the_policy_allows_and_nothing_else(
    url: str, program: Program, pushes: Pusher, seed: int
) -> None:
    state = random_state(seed)
    pushes(random_state(seed + 1000))
    pushed = pushes(state, compare=True)
    assert pushed.applied
    assert pushed.disagreements == ()
    reference = Reference(program, state)
    for user in USERS:
        for schema in SCHEMAS:
            for table in TABLES:
                name = f"{quoted(schema)}.{quoted(table)}"
                resource = entity("hive", schema, table)
                read, write = f"select * from {name}", f"update {name} set plain = 1"  # noqa: S608
                for action, statement in (("read", read), ("write", write)):
                    decision = reference.decide(Request(user=f"user:{user}", action=action, resource=resource))
                    assert tries(url, user, statement) == decision.allowed, (user, action, str(resource), seed)
    assert not pushes(state, apply=False).plan.changes
    pushes(State(grants=()))
    assert not any(tries(url, user, "select * from `sales`.`orders`") for user in USERS)


def test_a_percent_sign_or_an_underscore_in_a_name_stands_for_itself(url: str, pushes: Pusher) -> None:
    run(url, "create database hXr", "create table hXr.t (plain int)")
    grant = Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=entity("hive", "h%r"))
    pushed = pushes(State(grants=(grant,)), expand=False)
    assert pushed.requests == (r"GRANT SELECT ON `h\%r`.* TO `ann`@`%`",)
    assert tries(url, "ann", "select * from `h%r`.orders")
    assert not tries(url, "ann", "select * from hXr.t")
    run(url, "grant select on `h_r`.* to ann")
    found = pushes(State(grants=(grant,)), apply=False)
    assert list(map(str, found.plan.foreign)) == ["SELECT on databases like h_r to login ann@%"]
    pushes(State(grants=(grant,)), revoke_foreign=True)
    assert not tries(url, "ann", "select * from hXr.t")
    assert tries(url, "ann", "select * from `h%r`.orders")


def test_all_roles_of_a_login_are_in_force_when_it_connects(url: str, pushes: Pusher) -> None:
    grants = [Grant(grantee=f"role:{role}", effect="allow", privilege=privilege, entity=ORDERS)
              for role, privilege in (("b`l\\ack", "SELECT"), ("whi'te %s", "MODIFY"))]  # fmt: skip
    assignments = [Assignment(principal=f"user:{user}", role=role)
                   for user, role in (("ann", "b`l\\ack"), ("ann", "whi'te %s"), ("o'neil", "b`l\\ack"))]  # fmt: skip
    state = State(grants=tuple(grants), assignments=tuple(assignments))
    pushed = pushes(state)
    assert Account("role", "roles of ann") in pushed.plan.create
    assert tries(url, "ann", "insert into sales.orders select * from sales.orders")
    assert tries(url, "o'neil", "select * from sales.orders")
    assert not tries(url, "o'neil", "update sales.orders set plain = 1")
    assert not pushes(state).plan.changes
    pushes(State(grants=tuple(grants), assignments=tuple(assignments[1:])))
    assert run(url, "select json_value(priv, '$.default_role') from mysql.global_priv where user = 'ann'") == [
        ("whi'te %s",)
    ]
    pushes(State(grants=tuple(grants)))
    assert not tries(url, "ann", "select * from sales.orders")


def test_foreign_rights_stay_unless_revoking_them_is_requested(url: str, pushes: Pusher) -> None:
    run(url, "grant select, update (plain) on sales.orders to ann", "grant process on *.* to cy")
    found = pushes(State(grants=(Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=ORDERS),)))
    assert not found.plan.changes
    ann, cy = Account("login", "ann", "%"), Account("login", "cy", "%")
    column = Object("column", ("sales", "orders", "plain"))
    assert found.plan.foreign == {
        NativeGrant(ann, "allow", "UPDATE", column),
        NativeGrant(cy, "allow", "PROCESS", Object("server", ())),
    }
    assert not pushes(State(grants=())).plan.revoke
    assert tries(url, "ann", "update sales.orders set plain = 1")
    pushes(State(grants=()), revoke_foreign=True)
    assert not tries(url, "ann", "update sales.orders set plain = 1")


@pytest.mark.parametrize(
    ("account", "who"),
    [
        pytest.param(Account("login", "ann", "%"), "ann", id="a user"),
        pytest.param(Account("role", "all of them"), "`all of them`", id="a role", marks=pytest.mark.long),
    ],
)
def test_every_privilege_is_read_as_it_was_granted(url: str, pushes: Pusher, account: Account, who: str) -> None:
    """The numbers of privileges in the server's tables are known from its source."""
    run(url, "create role `all of them`", "create function sales.f() returns int deterministic return 1")
    places = {
        "server": "*.*", "database": "sales.*", "table": "sales.orders", "column": "sales.orders", "function": "function sales.f",
    }  # fmt: skip
    names = {
        "server": (),
        "database": ("sales",),
        "table": ("sales", "orders"),
        "column": ("sales", "orders", "plain"),
        "function": ("sales", "f"),
    }
    for kind, place in places.items():
        for privilege in TRAITS.privileges[kind] if TRAITS.privileges else ():
            what = f"{privilege} (plain)" if kind == "column" else privilege
            run(url, f"grant {what} on {place} to {who}")
            found = {
                right
                for right in pushes(State(grants=()), apply=False).plan.kept
                if isinstance(right, NativeGrant) and right.account == account
            }
            assert found == {NativeGrant(account, "allow", privilege, Object(kind, names[kind]))}
            run(url, f"revoke {what} on {place} from {who}")


def test_an_interrupted_push_goes_on_the_next_time(url: str, pushes: Pusher) -> None:
    """MariaDB commits each statement: one that fails leaves the earlier ones, and the record covers them."""
    names = ("ann", "cy")
    state = State(
        grants=tuple(Grant(grantee=f"user:{u}", effect="allow", privilege="SELECT", entity=ORDERS) for u in names)
    )
    pushes(State(grants=state.grants[:1]))
    run(url, "alter table privtab.pushed add constraint only_ann check (held not like '%cy%')")
    with pytest.raises(PushError, match="only_ann"):
        pushes(state)
    assert not tries(url, "cy", "select * from sales.orders"), "nothing is granted that is not recorded"
    run(url, "alter table privtab.pushed drop constraint only_ann")
    pushes(state)
    assert tries(url, "cy", "select * from sales.orders")
    pushes(State(grants=()))
    assert not any(tries(url, user, "select * from sales.orders") for user in names)


@pytest.mark.parametrize(
    ("grantee", "message"),
    [
        ("role:" + "r" * 129, "more than 128 characters"),
        ("role:none", "reserved"),
        ("role:roles of ann", "to roles of one user"),
        ("role:\N{GRINNING FACE}", r"above U\+FFFF"),
        ("role:x ", "ends with a space"),
    ],
)
def test_names_that_mariadb_cannot_have_are_findings(pushes: Pusher, grantee: str, message: str) -> None:
    found = pushes(
        State(grants=(Grant(grantee=grantee, effect="allow", privilege="SELECT", entity=ORDERS),)), expand=False
    )
    assert [finding.code for finding in found.desired.findings] == ["S303"]
    assert message.replace("\\", "") in found.desired.findings[0].message
    assert not found.applied
