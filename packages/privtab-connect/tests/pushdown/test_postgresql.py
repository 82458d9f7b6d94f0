"""After a push, logins of a real PostgreSQL can do what the policy allows, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from postgresql_server import postgresql
from pushed_lake import SCHEMAS, TABLES, USERS, entity, random_state
from seeds import seeds

from privtab.base import Entity, Request
from privtab.command._app import run as command
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_connect.errors import PushError
from privtab_connect.pushdown.document import MappingDocument
from privtab_connect.pushdown.rights import Account, NativeGrant, NativeOwnership, Object
from privtab_connect.pushdown.run import PushReport, push
from privtab_connect.targets.postgresql import LONGEST_NAME
from privtab_server.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]

ORDERS = entity("hive", "sales", "orders")
EVERYBODY = tuple(f"user:{user}" for user in USERS)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own with the schemas and tables, and the logins; all roles are dropped afterwards."""
    name = f"db{abs(hash(request.node.name))}"
    run(server, f"create database {name}", *(f"create role {quoted(user)} login" for user in USERS))
    address = str(sqlalchemy.make_url(server).set(database=name).render_as_string(hide_password=False))
    for schema in SCHEMAS:
        run(address, f"create schema {quoted(schema)}")
        for table in TABLES:
            run(address, f"create table {quoted(schema)}.{quoted(table)} (plain int, other int)")
    yield address
    run(server, f"drop database {name} with (force)")
    left = run(server, "select rolname from pg_roles where rolname !~ '^pg_' and rolname <> 'postgres'")
    run(server, *(f"drop role {quoted(str(role))}" for (role,) in left))


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement, as the superuser."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = None
        for statement in statements:
            found = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
        return [tuple(row) for row in found.all()] if found is not None and found.returns_rows else []


def tries(url: str, user: str, statement: str) -> bool:
    """Whether a login of its own may run a statement."""
    address = sqlalchemy.make_url(url)
    with psycopg.connect(dbname=address.database, user=user, host=str(address.query["host"])) as connection:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return False
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
    first = pushes(random_state(seed + 1000))
    pushed = pushes(state, compare=True)
    assert first.applied
    assert pushed.applied
    assert pushed.disagreements == ()
    reference = Reference(program, state)
    for user in USERS:
        for schema in SCHEMAS:
            for table in TABLES:
                name = f"{quoted(schema)}.{quoted(table)}"
                resource = entity("hive", schema, table)
                statements = {
                    "read": f"select * from {name}",  # noqa: S608
                    "write": f"update {name} set plain = 1",  # noqa: S608
                }
                for action, statement in statements.items():
                    decision = reference.decide(Request(user=f"user:{user}", action=action, resource=resource))
                    assert tries(url, user, statement) == decision.allowed, (user, action, str(resource), seed)
    assert not pushes(state, apply=False).plan.changes
    nothing = pushes(State(grants=()))
    assert not nothing.plan.grant
    assert not any(tries(url, user, 'select * from "sales"."orders"') for user in USERS)


def test_nothing_changes_without_apply_and_the_requests_are_those_that_are_applied(url: str, pushes: Pusher) -> None:
    state = State(grants=tuple(Grant(grantee="user:ann", effect="allow", privilege=p, entity=e) for p, e in
                               (("USE", entity("hive", "sales")), ("SELECT", ORDERS))))  # fmt: skip
    shown = pushes(state, apply=False, expand=False)
    assert not shown.applied
    assert shown.requests == (
        'GRANT SELECT ON TABLE "sales"."orders" TO "ann"',
        'GRANT USAGE ON SCHEMA "sales" TO "ann"',
    )
    assert not tries(url, "ann", "select * from sales.orders")
    assert run(url, "select to_regclass('privtab.pushed')") == [(None,)], "not even the record"
    assert pushes(state, expand=False).requests == shown.requests
    assert tries(url, "ann", "select * from sales.orders")


def test_foreign_rights_stay_unless_revoking_them_is_requested(url: str, pushes: Pusher) -> None:
    run(
        url,
        "grant usage on schema sales to ann",
        "grant select on sales.orders to ann",
        "create role dba",
        "grant dba to ann",
    )
    desired = State(grants=(Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=ORDERS),))
    pushed = pushes(desired)
    ann = Account("login", "ann")
    usage = NativeGrant(ann, "allow", "USAGE", Object("schema", ("sales",)))
    assert not pushed.plan.changes, "SELECT is there already"
    assert usage in pushed.plan.foreign
    assert "role dba to login ann" in map(str, pushed.plan.foreign)
    assert "CONNECT on database" not in " ".join(map(str, pushed.plan.foreign)), "no database is mapped"
    assert not pushes(State(grants=())).plan.revoke, "SELECT was there before the push that asked for it"
    assert tries(url, "ann", "select * from sales.orders")
    assert usage in pushes(State(grants=()), revoke_foreign=True).plan.revoke
    assert not tries(url, "ann", "select * from sales.orders")


def test_two_pushes_do_not_take_what_the_other_one_still_gives(url: str, pushes: Pusher) -> None:
    state = State(
        grants=tuple(
            Grant(grantee="user:ann", effect="allow", privilege=p, entity=entity("hive")) for p in ("USE", "SELECT")
        )
    )
    pushes(state, pusher="one")
    pushes(state, pusher="two")
    assert not pushes(State(grants=()), pusher="one").plan.revoke
    assert tries(url, "ann", "select * from sales.orders")
    assert pushes(State(grants=()), pusher="two").plan.revoke
    assert not tries(url, "ann", "select * from sales.orders")


def test_what_every_user_has_is_granted_to_public(url: str, program: Program, document: MappingDocument) -> None:
    program = replace(program, semantics=replace(program.semantics, everyone="all of them"))

    def everyone(privilege: str, place: Entity) -> Grant:
        return Grant(grantee="group:all of them", effect="allow", privilege=privilege, entity=place)

    shared = everyone("USE", entity("hive", "sales")), everyone("SELECT", ORDERS)
    members = ("cy", "all of them"), ("o'neil", "staff"), ("ann", "staff")
    pushed = push(program, State(grants=shared, memberships=members), document, url, pusher="lake", apply=True)
    assert pushed.applied
    assert pushed.desired.left_out["memberships: every user is in `all of them`"] == 1
    run(url, "create role newcomer login")
    assert tries(url, "newcomer", "select * from sales.orders")
    denied = Grant(grantee="user:ann", effect="deny", privilege="SELECT", entity=ORDERS)
    state = State(grants=(*shared, denied), memberships=members)
    found = push(program, state, document, url, pusher="lake", expand=True, apply=True, compare=True)
    assert found.disagreements == ()
    assert [tries(url, user, "select * from sales.orders") for user in USERS] == [False, True, True]
    assert not tries(url, "newcomer", "select * from sales.orders"), "one by one, to users whom rows name"
    for table, row in (("memberships", ("group:all of them", "staff")), ("owners", (ORDERS, "group:all of them"))):
        wrong = push(program, State(**{table: (row,)}), document, url, pusher="lake")  # type: ignore[arg-type]
        assert [finding.code for finding in wrong.desired.findings] == ["S301"]


def test_drift_is_seen_and_mended(url: str, pushes: Pusher) -> None:
    state = State(
        grants=tuple(
            Grant(grantee="user:ann", effect="allow", privilege=p, entity=entity("hive")) for p in ("USE", "SELECT")
        )
    )
    pushes(state)
    run(url, "revoke select on sales.orders from ann", "grant delete on sales.orders to cy")
    found = pushes(state, apply=False)
    assert found.drifted
    assert list(map(str, found.plan.grant)) == ["SELECT on table sales/orders to login ann"]
    public = "USAGE on schema public to everyone"
    assert sorted(map(str, found.plan.foreign)) == ["DELETE on table sales/orders to login cy", public]
    pushes(state)
    assert tries(url, "ann", "select * from sales.orders")
    run(url, "create table sales.new (plain int)")
    assert list(map(str, pushes(state, apply=False).plan.grant)) == ["SELECT on table sales/new to login ann"]


def test_an_owner_is_changed_and_has_no_more_than_the_mapping_says(
    url: str, program: Program, document: MappingDocument, pushes: Pusher
) -> None:
    run(
        url,
        "grant usage on schema sales to ann",
        "grant usage on schema sales to cy",
        "grant select (plain) on sales.orders to cy",
    )
    pushes(State(owners=((ORDERS, "user:cy"),)))
    assert not tries(url, "cy", "select other from sales.orders"), "the row says owner, and no operation reads by it"
    assert tries(url, "cy", "select plain from sales.orders"), "a column that somebody else granted"
    assert tries(url, "cy", "alter table sales.orders add column more int")
    reads = replace(document, owners={"table": ("SELECT",)})
    pushed = push(program, State(owners=((ORDERS, "user:ann"),)), reads, url, pusher="lake", apply=True)
    assert NativeOwnership(Object("table", ("sales", "orders")), Account("login", "ann")) in pushed.plan.grant
    assert tries(url, "ann", "select * from sales.orders")
    assert tries(url, "ann", "alter table sales.orders add column even_more int")
    assert not tries(url, "cy", "alter table sales.orders drop column plain")
    pushes(State(owners=()))
    assert run(url, "select tableowner from pg_tables where tablename = 'orders' and schemaname = 'sales'") == [
        ("postgres",)
    ]


def test_groups_and_roles_are_made_and_held(url: str, pushes: Pusher) -> None:
    state = State(
        grants=tuple(
            Grant(grantee="role:a\"n'a %s", effect="allow", privilege=p, entity=entity("hive"))
            for p in ("USE", "SELECT")
        ),
        assignments=(Assignment(principal="group:ströme", role="a\"n'a %s"),),
        memberships=(("o'neil", "ströme"),),
    )
    pushed = pushes(state)
    assert {account.name for account in pushed.plan.create} == {"a\"n'a %s", "ströme"}
    assert tries(url, "o'neil", "select * from sales.orders")
    assert not tries(url, "ann", "select * from sales.orders")
    pushes(replace(state, memberships=()))
    assert not tries(url, "o'neil", "select * from sales.orders")


def test_nothing_is_half_done_if_the_database_refuses(url: str, pushes: Pusher) -> None:
    """The trigger refuses the second of three memberships."""
    run(
        url,
        "create function stop() returns event_trigger language plpgsql as "
        "$$ begin if current_query() like '%\"hir%' then raise 'not today'; end if; end $$",
        "create event trigger stop on ddl_command_start when tag in ('GRANT') execute function stop()",
    )
    run(url, "create schema hir")
    state = State(
        grants=tuple(
            Grant(grantee="user:ann", effect="allow", privilege="USE", entity=entity("hive", s))
            for s in ("sales", "hir")
        )
    )
    with pytest.raises(PushError, match="not today"):
        pushes(state)
    run(url, "drop event trigger stop")
    assert run(url, "select has_schema_privilege('ann', 'sales', 'usage'), to_regnamespace('privtab')") == [
        (False, None)
    ]


def test_a_right_that_the_database_ignores_is_an_error(
    url: str, program: Program, document: MappingDocument, pushes: Pusher
) -> None:
    """GRANT by somebody who may not grant is a warning in PostgreSQL, and no error."""
    pushes(State(grants=(Grant(grantee="user:cy", effect="allow", privilege="SELECT", entity=ORDERS),)), pusher="other")
    run(url, "create role pusher login", "grant usage on schema sales to pusher", "grant usage on schema privtab to pusher",
        "grant all on privtab.pushed to pusher", "grant select on sales.orders to pusher")  # fmt: skip
    state = State(grants=(Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=ORDERS),))
    address = sqlalchemy.make_url(url).set(username="pusher").render_as_string()
    with pytest.raises(
        PushError, match=r"the database did not carry out the plan: SELECT on table sales/orders to login ann"
    ):
        push(program, state, document, address, pusher="lake", apply=True)
    assert run(url, "select pusher from privtab.pushed") == [("other",)]


def test_what_a_store_says_is_pushed(
    url: str, program: Program, lake: Path, mapping: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.create(str(tmp_path / "grants.db"), program)
    grants = [("USE", "schema:hive/sales"), ("SELECT", str(ORDERS))]
    rows = [{"grantee": "user:ann", "effect": "allow", "privilege": p, "entity": e} for p, e in grants]
    store.load({"grants": rows}, actor="setup")

    def pushed(state: str, *more: str) -> int:
        place = ("-p", str(lake), "-s", f"store:{tmp_path}/{state}", "--set", "catalog=hive")
        return command(["state", "push", str(mapping), url, *place, *more])

    assert pushed("grants.db") == 0
    assert not tries(url, "ann", "select * from sales.orders"), "nothing changes without --apply"
    assert pushed("grants.db", "--apply") == 0
    assert tries(url, "ann", "select * from sales.orders")
    assert not tries(url, "ann", "update sales.orders set plain = 1")
    assert pushed("grants.db", "--check", "--foreign", "accept") == 0
    # Before the load, the store gave nobody anything.
    assert pushed("grants.db@1", "--check", "--foreign", "accept") == 1
    assert pushed("grants.db@1", "--apply") == 0
    assert not tries(url, "ann", "select * from sales.orders")
    assert "2 to revoke, done" in capsys.readouterr().err


def test_names_that_postgresql_cannot_have_are_findings(url: str, pushes: Pusher) -> None:
    """A name of 63 bytes is as it is; one of 64 would be cut short to the name of somebody else."""
    longest = "ü" * (LONGEST_NAME // 2) + "u"
    run(url, f'create role "{longest}" login')
    grants = [Grant(grantee=f"user:{name}", effect="allow", privilege="USE", entity=entity("hive", "sales"))
              for name in (longest, longest + "u")]  # fmt: skip
    found = pushes(State(grants=tuple(grants)), expand=False)
    assert [finding.code for finding in found.desired.findings] == ["S303"]
    assert found.desired.findings[0].place.row == 2
    assert not found.applied
    assert run(url, f"select has_schema_privilege('{longest}', 'sales', 'usage')") == [(False,)]
    assert pushes(State(grants=tuple(grants[:1])), expand=False).applied
    assert run(url, f"select has_schema_privilege('{longest}', 'sales', 'usage')") == [(True,)]


def test_objects_logins_and_databases_that_are_not_there_are_told(url: str, pushes: Pusher) -> None:
    state = State(
        grants=(
            Grant(grantee="user:zoe", effect="allow", privilege="USE", entity=entity("hive", "sales")),
            Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=entity("hive", "sales", "gone")),
            Grant(grantee="user:ann", effect="allow", privilege="SELECT", entity=entity("ice", "sales", "orders")),
            Grant(grantee="user:ann", effect="allow", privilege="COMMENT", entity=ORDERS),
        ),
        service_admins=("root",),
    )
    found = pushes(state, expand=False)
    assert found.desired.absent == {"login zoe": 1, "table sales/gone": 1}
    assert found.desired.outside == 1
    assert found.desired.left_out == {
        "COMMENT: only an owner may comment in PostgreSQL": 1,
        "service_admins: superusers are made by hand": 1,
    }
    assert not found.plan.changes
    assert found.unlimited == ("login postgres",)


def test_the_password_of_a_database_that_is_not_reached_is_not_shown(
    program: Program, document: MappingDocument, tmp_path: Path
) -> None:
    with pytest.raises(PushError, match=r"postgresql\+psycopg://ann:\*\*\*@127.0.0.1:1/db: ") as caught:
        push(program, State(grants=()), document, "postgresql+psycopg://ann:s3cret@127.0.0.1:1/db", pusher="x")
    assert "s3cret" not in str(caught.value)
    del tmp_path
