"""Which rights rows are: everything that a target cannot express is a finding, and what is granted instead is exact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pushed_lake import GROUPS, ROLES, SCHEMAS, TABLES, USERS, entity, random_state
from seeds import seeds

from privtab.base import Entity, Window, parse_moment
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import Assignment, Grant, State
from privtab_connect.pushdown.desired import DesiredRights, desired_rights
from privtab_connect.pushdown.document import MappingDocument, load
from privtab_connect.pushdown.rights import (
    Account,
    DefaultRole,
    Inventory,
    NativeGrant,
    NativeMembership,
    NativeOwnership,
    Object,
    Right,
    accounts_of,
    difference,
    from_text,
    in_order,
    to_text,
)
from privtab_connect.pushdown.run import disagreements
from privtab_connect.targets import postgresql

INVENTORY = Inventory(
    accounts=frozenset(Account("login", user) for user in USERS),
    objects=frozenset(
        [Object("schema", (schema,)) for schema in SCHEMAS]
        + [Object("table", (schema, table)) for schema in SCHEMAS for table in TABLES]
    ),
    rights=frozenset(),
)


def desired(program: Program, document: MappingDocument, state: State, *, expand: bool = False) -> DesiredRights:
    return desired_rights(program, state, document, INVENTORY, postgresql, expand=expand)


def grant(grantee: str, privilege: str, *names: str, effect: str = "allow") -> Grant:
    return Grant(grantee=grantee, effect=effect, privilege=privilege, entity=entity(*names))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"grants": (grant("user:ann", "USE", "hive", "sales", effect="deny"),)}, "postgresql has no denials"),
        ({"grants": (grant("user:ann", "SELECT", "hive", "sales"),)}, "the grant is also about every table in the schema"),
        ({"assignments": (Assignment(principal="user:ann", role="x", scope=entity("hive", "sales")),)}, "held within"),
        ({"assignments": (Assignment(principal="user:ann", role="reader"),)}, "default grants"),
        ({"owners": ((entity("hive", "sales"), "user:ann"),)}, "the owner of a schema has no counterpart"),
        ({"members": (("ann", entity("hive")),)}, "rows of `members` have no counterpart"),
        ({"grants": (grant("role:pg_x", "USE", "hive", "sales"),)}, "the name is reserved"),
        ({"grants": (grant("role:ann", "USE", "hive", "sales"),)}, "`ann` is a login in postgresql"),
        ({"memberships": (("cy", "x"),), "assignments": (Assignment(principal="group:x", role="x"),)}, "would both be role x"),
        ({"owners": ((entity("hive", "sales", "orders"), "user:ann"), (entity("hive", "sales", "orders"), "user:cy"))}, "has one owner"),
    ],
)  # fmt: skip
def test_rights_that_the_target_cannot_express_are_findings(
    program: Program, document: MappingDocument, rows: Mapping[str, object], message: str
) -> None:
    found = desired(program, document, State(**rows))  # type: ignore[arg-type]
    assert [message in finding.message for finding in found.findings] == [True], found.findings


def test_rows_that_hold_for_a_time_are_findings_unless_a_moment_is_chosen(
    program: Program, document: MappingDocument
) -> None:
    row = grant("user:ann", "USE", "hive", "sales")
    state = State(
        grants=(row,),
        windows={"grants": [Window(parse_moment("2026-01-01T00:00Z"), parse_moment("2026-02-01T00:00Z"))]},
    )
    assert [finding.code for finding in desired(program, document, state).findings] == ["S302"]
    assert desired(program, document, state.at(parse_moment("2026-01-15T00:00Z"))).rights
    assert not desired(program, document, state.at(parse_moment("2026-03-15T00:00Z"))).rights


@pytest.mark.parametrize("seed", seeds(range(200), quick=20))
def test_expanded_rights_decide_as_the_policy(program: Program, document: MappingDocument, seed: int) -> None:
    state = random_state(seed)
    found = desired(program, document, state, expand=True)
    assert not found.findings
    plan = difference(INVENTORY, found.rights, frozenset())
    assert disagreements(program, state, document, INVENTORY, plan.kept) == ()


def test_a_wider_right_is_told(program: Program, document: MappingDocument) -> None:
    """The comparison is able to fail."""
    rights = {
        NativeGrant(Account("everyone", ""), "allow", p, o)
        for p, o in (("USAGE", Object("schema", ("sales",))), ("SELECT", Object("table", ("sales", "orders"))))
    }
    state = State(memberships=(("ann", "staff"),))
    [found] = disagreements(program, state, document, INVENTORY, rights)
    assert str(found) == "ann read table:hive/sales/orders: the policy denies, the target allows it"


def test_roles_stay_roles_where_that_is_exact(program: Program, document: MappingDocument) -> None:
    state = State(
        grants=(
            grant("group:staff", "SELECT", "hive"),
            grant("user:cy", "SELECT", "hive", "sales", "orders", effect="deny"),
        ),
        memberships=(("ann", "staff"), ("cy", "staff")),
    )
    rights = {r for r in desired(program, document, state, expand=True).rights if isinstance(r, NativeGrant)}
    staff, ann = Account("role", "staff"), Account("login", "ann")
    to_users = {right for right in rights if right.account != staff}
    assert to_users == {NativeGrant(ann, "allow", "SELECT", Object("table", ("sales", "orders")))}
    assert len(rights) == len(SCHEMAS) * len(TABLES)


def test_rights_are_recorded_as_text_and_read_again() -> None:
    ann, role, table = Account("login", 'a"n', "%"), Account("role", "r\\"), Object("table", ("s", "t/"))
    rights: set[Right] = {
        NativeGrant(ann, "deny", "X", table),
        NativeMembership(ann, role),
        NativeOwnership(table, ann),
        DefaultRole(ann, role),
    }
    assert {from_text(to_text(right)) for right in rights} == rights
    assert len(in_order(rights)) == 4
    with pytest.raises(ValueError, match="no recorded right"):
        from_text('["grant"]')


def test_the_names_of_the_generated_states_are_those_of_the_inventory() -> None:
    """Otherwise the comparison would look at nobody."""
    state = [random_state(seed) for seed in range(20)]
    grantees = {row.grantee for each in state for row in each.grants}
    assert {f"user:{u}" for u in USERS} | {f"group:{g}" for g in GROUPS} | {f"role:{r}" for r in ROLES} == grantees


ROLES_AS_OBJECTS = """\
privtab: 1
system: shop
version: "1"
entities: {database: , role: }
types: {role: {principal: role}}
privileges: {CONNECT: {on: [database]}, ADMIN: {on: [role]}}
semantics: {hierarchy: roles, owner: {kinds: [user, role]}}
tables: {database: {connect: CONNECT (database)}, role: {set: member (role) or holds (role), grant: ADMIN (role)}}
"""
ROLES_MAPPING = """\
push: 1
title: Roles as objects
target: postgresql
objects: {database: database, role: role}
privileges: {CONNECT: {database: CONNECT}, ADMIN: {role: ADMIN OPTION}}
members: {role: SET}
names: {role: "shop_{name}"}
owners: {database: []}
"""
DATABASE = Entity("database", "shop")
SHOP = Inventory(
    accounts=frozenset({Account("login", "ann"), Account("login", "shop_ann"), Account("role", "pg_monitor")}),
    objects=frozenset({Object("database", ("shop",)), Object("role", ("ann",))}),
    rights=frozenset(),
    predefined=frozenset({Account("role", "pg_monitor")}),
)


def of_shop(tmp_path: Path, mapping: str, state: State) -> DesiredRights:
    policy, document = tmp_path / "shop.yaml", tmp_path / "mapping.yaml"
    policy.write_text(ROLES_AS_OBJECTS, encoding="utf-8")
    document.write_text(mapping, encoding="utf-8")
    program = load_program(policy)
    return desired_rights(program, state, load(str(document), program, {}), SHOP, postgresql)


def on(grantee: str, privilege: str, entity: Entity) -> Grant:
    return Grant(grantee=grantee, effect="allow", privilege=privilege, entity=entity)


def test_privileges_on_a_role_are_about_its_native_name(tmp_path: Path) -> None:
    """The role is made by the same push, since a row says who holds it."""
    state = State(
        members=(("ann", Entity("role", "hr")),),
        assignments=(Assignment(principal="role:eng", role="hr"),),
        grants=(on("role:eng", "ADMIN", Entity("role", "hr")), on("role:eng", "ADMIN", Entity("role", "gone"))),
    )
    found = of_shop(tmp_path, ROLES_MAPPING, state)
    assert found.findings == ()
    assert set(map(str, found.rights)) == {
        "SET on role shop_hr to login ann",
        "role shop_hr to role shop_eng",
        "ADMIN OPTION on role shop_hr to role shop_eng",
    }
    assert found.absent == {"role shop_gone": 1}


PLAIN = ROLES_MAPPING.replace('names: {role: "shop_{name}"}\n', "")
IS_ITSELF = Assignment(principal="user:ann", role="ann")


@pytest.mark.parametrize(
    ("state", "exact"),
    [
        (State(grants=(on("role:ann", "CONNECT", DATABASE),), assignments=(IS_ITSELF,)), True),
        (State(owners=((DATABASE, "role:ann"),), assignments=(IS_ITSELF,)), True),
        (State(grants=(on("role:ann", "CONNECT", DATABASE),)), False),
        (State(grants=(on("user:ann", "CONNECT", DATABASE),), assignments=(IS_ITSELF,)), False),
        (State(owners=((DATABASE, "user:ann"),), assignments=(IS_ITSELF,)), False),
        (State(assignments=(IS_ITSELF, Assignment(principal="user:ann", role="hr"))), False),
        (State(members=(("ann", Entity("role", "ann")),)), False),
    ],
)
def test_a_login_is_the_role_of_its_name_if_all_that_it_has_is_the_role(
    tmp_path: Path, state: State, exact: bool
) -> None:
    """What a login has, its members have in the server: so nothing may be the user's alone."""
    found = of_shop(tmp_path, PLAIN, state)
    assert {finding.code for finding in found.findings} == (set() if exact else {"S304"})
    if exact:
        assert {account for right in found.rights for account in accounts_of(right)} == {Account("login", "ann")}
        assert found.left_out == {"a login holds the role of its own name": 1}


def test_a_reserved_name_is_that_of_a_role_of_the_target_itself(tmp_path: Path) -> None:
    found = of_shop(tmp_path, PLAIN, State(assignments=(Assignment(principal="user:ann", role="pg_monitor"),)))
    assert set(map(str, found.rights)) == {"role pg_monitor to login ann"}
    found = of_shop(tmp_path, PLAIN, State(assignments=(Assignment(principal="user:ann", role="pg_other"),)))
    assert [finding.code for finding in found.findings] == ["S303"]


def test_names_of_principals_are_not_encoded(tmp_path: Path) -> None:
    roles = ("a%2Fb", "a/b", "%2A", "c%d")
    state = State(assignments=tuple(Assignment(principal="user:ann", role=role) for role in roles))
    found = of_shop(tmp_path, PLAIN, state)
    assert {right.role.name for right in found.rights if isinstance(right, NativeMembership)} == {
        "a%2Fb",
        "a/b",
        "*",
        "c%d",
    }
