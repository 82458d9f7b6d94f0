"""What a system answers becomes rows; what a state cannot say is reported, and never dropped in silence."""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ranger import LAKE, ranger_policy

from privtab.base import Entity, FileError, UsageError
from privtab.pipeline import load_program
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import load
from privtab_connect.importing.run import ImportResult, run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(LAKE, encoding="utf-8")
    return path


TOKEN = "example"  # noqa: S105  (a server of this test knows it)


def imported(document: str, source: str, policy: str | Path, **options: Any) -> ImportResult:
    with opened(source, token=options.pop("token", None)) as answers:
        return run(load(document), answers, load_program(policy), **options)


def saved(folder: Path, answers: Mapping[str, object]) -> str:
    """A folder of saved answers."""
    for address, answer in answers.items():
        path = folder / f"{address.strip('/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(answer), encoding="utf-8")
    return str(folder)


def grants(found: ImportResult) -> set[tuple[str, str, str, str]]:
    return {(g.grantee, g.effect, g.privilege, str(g.entity)) for g in found.state.grants}


# --- Ranger ----------------------------------------------------------------------------------------------------------


def test_ranger_policies_are_grants_and_denials(tmp_path: Path, lake: Path) -> None:
    item = {"accesses": [{"type": "update"}], "users": [], "groups": ["temps"], "roles": ["intern"]}
    export = {"policies": [ranger_policy(1, denyPolicyItems=[item]), ranger_policy(2, isEnabled=False)]}
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export), encoding="utf-8")
    found = imported("ranger", str(path), lake)
    assert grants(found) == {
        ("user:ann", "allow", "SELECT", "table:sales/orders"),
        ("group:hr", "allow", "SELECT", "table:sales/orders"),
        ("group:temps", "deny", "UPDATE", "table:sales/orders"),
        ("role:intern", "deny", "UPDATE", "table:sales/orders"),
    }
    assert not found.not_taken


@pytest.mark.parametrize(
    ("more", "why", "left"),
    [
        (
            {"allowExceptions": [{"users": ["bob"], "accesses": []}]},
            "exceptions from allow; its allow items are left out",
            0,
        ),
        ({"denyExceptions": [{"users": ["bob"], "accesses": []}]}, "exceptions from deny", 2),
        ({"validitySchedules": [{"endTime": "2027/01/01 00:00:00"}]}, "it holds at some times only", 0),
        ({"policyType": 1}, "a data mask", 0),
        ({"policyType": 2}, "a row filter", 0),
        ({"resources": {"database": {"values": ["hr"], "isExcludes": True}}}, "all resources but these", 0),
        ({"resources": {"path": {"values": ["/data"]}}}, "its resources are path", 0),
    ],
)
def test_parts_of_ranger_policies_that_no_state_can_express_are_reported(
    tmp_path: Path, lake: Path, more: dict[str, object], why: str, left: int
) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(7, **more)]), encoding="utf-8")
    found = imported("ranger", str(path), lake)
    assert any(why in str(skipped) and "`p7`" in skipped.what for skipped in found.not_taken), found.not_taken
    assert len(found.state.grants) == left


def test_wildcards_are_expanded_or_refused(tmp_path: Path, lake: Path) -> None:
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["o*"]}, "column": {"values": ["*"]}}
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(1, resources=resources)]), encoding="utf-8")
    alone = imported("ranger", str(path), lake)
    assert not alone.state.grants
    assert {skipped.why for skipped in alone.not_taken} == {"no list of entities was given to expand it"}
    entities = [Entity("table", path) for path in ("sales/orders", "sales/offers", "sales/items", "hr/o")]
    listed = imported("ranger", str(path), lake, entities=entities)
    assert {entity for _, _, _, entity in grants(listed)} == {"table:sales/orders", "table:sales/offers"}
    assert listed.translated == ("`table:sales/o*` stands for 2 entities of the list",)
    assert not listed.not_taken


# --- over HTTP -------------------------------------------------------------------------------------------------------


@contextmanager
def serving(answers: Mapping[str, Callable[[dict[str, list[str]]], object] | object], token: str = "") -> Iterator[str]:
    """A server of recorded answers by path; anything else is 404, and 401 without the token."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            answer = answers.get(unquote(parts.path))
            if callable(answer):
                answer = answer(parse_qs(parts.query))
            status = 404 if answer is None else 200
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                status = 401
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def with_hierarchy(policy: Path) -> Path:
    """The policy with groups in groups and roles held by roles."""
    text = policy.read_text(encoding="utf-8").replace("semantics: {", "semantics: {hierarchy: [groups, roles], ")
    assert "hierarchy" in text
    policy.write_text(text, encoding="utf-8")
    return policy


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_scim_groups_are_memberships_page_by_page(lake: Path, *, nested: bool) -> None:
    if nested:
        lake = with_hierarchy(lake)
    people = [{"id": str(n), "userName": f"user{n}@x", "active": n != 4} for n in range(5)]
    groups = [
        {"id": "g1", "displayName": "hr", "members": [{"value": "0"}, {"value": "3", "type": "User"}, {"value": "4"}]},
        {"id": "g2", "displayName": "all", "members": [{"value": "g1", "display": "hr", "type": "Group"}]},
    ]

    def page(resources: list[dict[str, Any]]) -> Callable[[dict[str, list[str]]], object]:
        def answer(query: dict[str, list[str]]) -> object:
            start = int(query.get("startIndex", ["1"])[0])
            return {"totalResults": len(resources), "startIndex": start, "Resources": resources[start - 1 : start + 1]}

        return answer

    with serving({"/scim/v2/Users": page(people), "/scim/v2/Groups": page(groups)}, token=TOKEN) as url:
        found = imported("scim", f"{url}/scim/v2", lake, token=TOKEN)
    more = {("group:hr", "all")} if nested else set()
    assert set(found.state.memberships) == {("user0@x", "hr"), ("user3@x", "hr")} | more
    lost = {skipped.name: skipped for skipped in found.not_taken}
    assert lost.keys() == {"deactivated-member"} | (set() if nested else {"nested-group"})
    assert lost["deactivated-member"].what == "user `user4@x` in group `hr` is deactivated, and left out of it"
    assert all(skipped.denies for skipped in found.not_taken), "a group may be denied something"


def test_nothing_is_taken_from_a_server_that_refuses(lake: Path) -> None:
    with serving({"/Users": {"Resources": []}}, token=TOKEN) as url, pytest.raises(FileError, match="answered 401"):
        imported("scim", url, lake)


def test_nothing_is_taken_where_a_server_goes_away_in_the_middle(lake: Path) -> None:
    with (
        serving({"/Users": {"totalResults": 0, "Resources": []}}) as url,
        pytest.raises(FileError, match="no answer to `/Groups"),
    ):
        imported("scim", url, lake)


def users(*pages: object) -> Callable[[dict[str, list[str]]], object]:
    """The pages of a list of users, of which each has one; None: there is no answer."""
    return lambda query: pages[int(query.get("startIndex", ["1"])[0]) - 1]


ONE_OF_TWO = {"totalResults": 2, "Resources": [{"id": "1", "userName": "ann"}]}


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ((ONE_OF_TWO, None), "no answer to `/Users.*startIndex=2`, a further page"),
        ((ONE_OF_TWO, {"totalResults": 2, "Resources": []}), "ends after 1 of 2 items"),
        ((ONE_OF_TWO, {"totalResults": 2}), "ends after 1 of 2 items"),
        ((ONE_OF_TWO, {"detail": "try again"}), "has no number at `totalResults`"),
        (({"Resources": [{"id": "1", "userName": "ann"}]},), "has no number at `totalResults`"),
    ],
    ids=["a page is gone", "an empty page", "a page without items", "another answer", "no total"],
)
def test_nothing_is_taken_where_pages_are_missing(lake: Path, pages: tuple[object, ...], message: str) -> None:
    groups = {"totalResults": 0, "Resources": []}
    with serving({"/Users": users(*pages), "/Groups": groups}) as url, pytest.raises(FileError, match=message):
        imported("scim", url, lake)


def test_nothing_is_taken_from_an_answer_that_ends_in_the_middle(lake: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"totalResults": 0')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(FileError, match=re.escape(url)):
            imported("scim", url, lake)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=10)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"policies": [{"id": 1, "isEn', "is not JSON"),
        ('{"policies": [{"name": "zo\u00eb"}]}'.encode("latin-1"), "is not JSON"),
        (b'{"policies": [], "policies": []}', "is not JSON"),
        (b"", "is not JSON"),
    ],
    ids=["half written", "another encoding", "a doubled key", "empty"],
)
def test_nothing_is_taken_from_a_broken_file(tmp_path: Path, lake: Path, content: bytes, message: str) -> None:
    path = tmp_path / "export.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        imported("ranger", str(path), lake)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("create table grants (grantee, effect, privilege)", "no column `entity`"),
        ("insert into members values (cast(x'fffe41' as text), 'lake:l')", "UTF-8"),
    ],
    ids=["a column is missing", "another encoding"],
)
def test_nothing_is_taken_from_a_database_with_wrong_tables(
    tmp_path: Path, lake: Path, script: str, message: str
) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.executescript(
            'create table members ("user", "of"); create table memberships ("user", "group");'
            f"create table assignments (principal, role, scope); {script};"
        )
    with pytest.raises(FileError, match=message):
        imported("tables", f"sqlite:///{tmp_path / 'state.db'}", lake)


def test_gravitino_is_read_through_its_api() -> None:
    names = {"code": 0, "identifiers": [{"namespace": ["prod"], "name": "hive"}]}
    role = {
        "name": "analyst",
        "securableObjects": [
            {
                "fullName": "hive.sales.orders",
                "type": "TABLE",
                "privileges": [{"name": "select_table", "condition": "allow"}],
            },
            {"fullName": "hive", "type": "CATALOG", "privileges": [{"name": "USE_CATALOG", "condition": "DENY"}]},
            {"fullName": "prod", "type": "METALAKE", "privileges": [{"name": "CREATE_ROLE", "condition": "ALLOW"}]},
            {
                "fullName": "hive.sales.f",
                "type": "FUNCTION",
                "privileges": [{"name": "EXECUTE_FUNCTION", "condition": "DENY"}],
            },
        ],
    }
    base = "/api/metalakes/prod"
    answers = {
        f"{base}/users": {"code": 0, "users": [{"name": "ann", "roles": ["analyst"]}, {"name": "bob", "roles": []}]},
        f"{base}/groups": {"code": 0, "groups": [{"name": "hr", "roles": ["analyst"]}]},
        f"{base}/roles": {"code": 0, "names": ["analyst"]},
        f"{base}/roles/analyst": {"code": 0, "role": role},
        f"{base}/catalogs": names,
        f"{base}/catalogs/hive/schemas": {"code": 0, "identifiers": [{"namespace": ["prod", "hive"], "name": "sales"}]},
        f"{base}/catalogs/hive/schemas/sales/tables": {"code": 0, "identifiers": [{"name": "orders"}]},
        f"{base}/owners/CATALOG/hive": {"code": 0, "owner": {"name": "ann", "type": "USER"}},
        f"{base}/owners/TABLE/hive.sales.orders": {"code": 0, "owner": {"name": "hr", "type": "GROUP"}},
    }
    with serving(answers) as url:
        found = imported("gravitino", url, "gravitino/1.1.0", values={"metalake": "prod"})
    assert grants(found) == {
        ("role:prod/analyst", "allow", "SELECT_TABLE", "table:prod/hive/sales/orders"),
        ("role:prod/analyst", "deny", "USE_CATALOG", "catalog:prod/hive"),
        ("role:prod/analyst", "allow", "CREATE_ROLE", "metalake:prod"),
    }
    assert {(a.principal, a.role) for a in found.state.assignments} == {
        ("user:ann", "prod/analyst"),
        ("group:hr", "prod/analyst"),
    }
    assert {(user, str(of)) for user, of in found.state.members} == {("ann", "metalake:prod"), ("bob", "metalake:prod")}
    assert [(str(e), o) for e, o in found.state.owners] == [("catalog:prod/hive", "user:ann")]
    function, owner = sorted(found.not_taken, key=lambda skipped: skipped.what)
    assert "EXECUTE_FUNCTION" in function.what
    assert function.denies
    assert owner.what == "owners: entity table:prod/hive/sales/orders, owner group:hr"
    assert not owner.denies


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_polaris_catalog_roles_are_held_by_principal_roles(tmp_path: Path, lake: Path, *, nested: bool) -> None:
    if nested:
        lake = with_hierarchy(lake)
    source = saved(
        tmp_path / "saved",
        {
            "/principal-roles": {"roles": [{"name": "engineer"}]},
            "/principal-roles/engineer/principals": {"principals": [{"name": "etl"}]},
            "/catalogs": {"catalogs": [{"name": "prod"}]},
            "/catalogs/prod/catalog-roles": {"roles": [{"name": "rea%der"}]},
            "/catalogs/prod/catalog-roles/rea%der/principal-roles": {"roles": [{"name": "engineer"}]},
            "/catalogs/prod/catalog-roles/rea%der/grants": {
                "grants": [
                    {"type": "namespace", "namespace": ["a"], "privilege": "TABLE_READ_DATA"},
                    {"type": "view", "namespace": ["a"], "viewName": "v/1", "privilege": "VIEW_LIST"},
                    {"type": "namespace", "namespace": ["a", "b"], "privilege": "TABLE_READ_DATA"},
                    {"type": "policy", "namespace": ["a"], "policyName": "p", "privilege": "POLICY_READ"},
                ]
            },
        },
    )
    found = imported("polaris", source, lake)
    grantee = "role:prod/rea%25der" if nested else "role:engineer"
    assert grants(found) == {
        (grantee, "allow", "TABLE_READ_DATA", "namespace:prod/a"),
        (grantee, "allow", "VIEW_LIST", "view:prod/a/v%2F1"),
    }
    chain = [("role:engineer", "prod/rea%25der", Entity("catalog", "prod"))] if nested else []
    assert [(a.principal, a.role, a.scope) for a in found.state.assignments] == [("user:etl", "engineer", None), *chain]
    whys = sorted(f"{skipped.what} {skipped.why}" for skipped in found.not_taken)
    assert "`POLICY_READ` on a policy of prod, granted to `rea%der`" in whys[0]
    assert "wrong depth: `namespace:prod/a/b`" in whys[1]
    assert not any(skipped.denies for skipped in found.not_taken)


def test_grants_on_whatever_polaris_has_are_of_its_own_kind(tmp_path: Path) -> None:
    """A grant whose object has no name is not one on the namespace, nor on another object."""
    named = [
        {"type": "policy", "namespace": ["a", "b"], "policyName": "p.1", "privilege": "POLICY_READ"},
        {"type": "semantic-model", "namespace": ["a"], "semanticModelName": "m", "privilege": "SEMANTIC_MODEL_READ"},
        {"type": "table", "namespace": ["a"], "tableName": "secrets$files", "privilege": "TABLE_READ_DATA"},
        {"type": "view", "namespace": ["a.b"], "viewName": "V", "privilege": "VIEW_LIST"},
    ]
    unnamed = [
        {"type": type_, "namespace": ["a", "b"], "privilege": "CATALOG_MANAGE_ACCESS"}
        for type_ in ("table", "view", "policy", "semantic-model", "principal", "root", "function")
    ]
    crossed = [{"type": "policy", "namespace": ["a"], "tableName": "t", "privilege": "POLICY_READ"}]
    source = saved(
        tmp_path / "saved",
        {
            "/principal-roles": {"roles": [{"name": "r"}]},
            "/principal-roles/r/principals": {"principals": []},
            "/catalogs": {"catalogs": [{"name": "c"}]},
            "/catalogs/c/catalog-roles": {"roles": [{"name": "all"}]},
            "/catalogs/c/catalog-roles/all/principal-roles": {"roles": [{"name": "r"}]},
            "/catalogs/c/catalog-roles/all/grants": {"grants": [*named, *unnamed, *crossed]},
        },
    )
    found = imported("polaris", source, "polaris/1.8")
    assert {(privilege, entity) for _, _, privilege, entity in grants(found)} == {
        ("POLICY_READ", "policy:c/a/b/p.1"),
        ("SEMANTIC_MODEL_READ", "semantic_model:c/a/m"),
        ("TABLE_READ_DATA", "table:c/a/secrets$files"),
        ("VIEW_LIST", "view:c/a.b/V"),
    }
    assert len(found.not_taken) == len(unnamed) + len(crossed)


UNITY = """\
privtab: 1
system: unity
version: "1"
entities:
  catalog:
    schema:
      table:
privileges:
  SELECT: {on: [catalog, schema, table]}
semantics: {inheritance: down, deny: none, owner: {kinds: [user, group]}}
tables:
  table:
    read: SELECT (table) or owner (table)
"""


def test_unity_catalog_grants_and_owners(tmp_path: Path) -> None:
    policy = tmp_path / "unity.yaml"
    policy.write_text(UNITY, encoding="utf-8")

    def tables(query: dict[str, list[str]]) -> object:
        assert query["schema_name"] == ["s"]
        if "page_token" in query:
            return {"tables": [{"name": "t2", "owner": "stewards"}]}
        return {"tables": [{"name": "t1", "owner": "ann@x"}], "next_page_token": "2 &"}

    permissions = {"privilege_assignments": [{"principal": "hr", "privileges": ["SELECT", "MODIFY"]}]}
    answers = {
        "/catalogs": {"catalogs": [{"name": "main", "owner": None}], "next_page_token": ""},
        "/permissions/catalog/main": {"privilege_assignments": []},
        "/schemas": {"schemas": [{"name": "s"}]},
        "/permissions/schema/main.s": {"privilege_assignments": [{"principal": "bob@x", "privileges": ["SELECT"]}]},
        "/tables": tables,
        "/permissions/table/main.s.t1": permissions,
        "/permissions/table/main.s.t2": {"privilege_assignments": []},
    }
    with serving(answers) as url:
        found = imported("unitycatalog", url, policy)
    assert grants(found) == {
        ("user:bob@x", "allow", "SELECT", "schema:main/s"),
        ("group:hr", "allow", "SELECT", "table:main/s/t1"),
    }
    assert {(str(e), o) for e, o in found.state.owners} == {
        ("table:main/s/t1", "user:ann@x"),
        ("table:main/s/t2", "group:stewards"),
    }
    assert {item.name: item.denies for item in found.not_taken} == {"users": True, "unknown-privilege": False}
    assert found.refused(strict=False, allow_partial=False, accept=())
    assert not found.refused(strict=False, allow_partial=False, accept=("users",))
    users = [{"userName": "ann@x", "active": False, "id": "1"}, {"userName": "bob@x", "active": True, "id": "2"}]
    listed = {"/api/1.0/unity-control/scim2/Users": {"totalResults": 2, "Resources": users}}
    served = {f"/api/2.1/unity-catalog{path}": answer for path, answer in answers.items()}
    with serving(listed | served) as url:
        enabled = imported("unitycatalog", f"{url}/api/2.1/unity-catalog", policy)
    assert grants(enabled) == grants(found)
    assert {(str(e), o) for e, o in enabled.state.owners} == {("table:main/s/t2", "group:stewards")}
    assert [item.name for item in enabled.not_taken] == ["unknown-privilege"]
    users[1]["active"] = False
    with serving(listed | served) as url:
        assert grants(imported("unitycatalog", f"{url}/api/2.1/unity-catalog", policy)) == {
            ("group:hr", "allow", "SELECT", "table:main/s/t1")
        }


# --- what is refused --------------------------------------------------------------------------------------------------


def test_values_that_a_document_needs_are_required(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs `metalake`: --set NAME=VALUE"):
        imported("gravitino", str(tmp_path), "gravitino/1.1.0")
    with pytest.raises(UsageError, match="does not use `region`"):
        imported("scim", str(tmp_path), lake, values={"region": "eu"})


def test_a_source_of_another_kind_is_refused(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has SQL queries: give the URL of a database"):
        imported("postgresql", str(tmp_path), lake)
    with pytest.raises(UsageError, match="requests `/Users"):
        imported("scim", "sqlite://", lake)


def test_a_database_with_the_tables_of_a_state(tmp_path: Path, lake: Path) -> None:
    import sqlite3

    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.executescript("""
            create table members ("user", "of");
            create table memberships ("user", "group");
            create table assignments (principal, role, scope);
            create table grants (grantee, effect, privilege, entity);
            create table owners (entity, owner);
            create table service_admins ("user");
            insert into memberships values ('ann', 'hr');
            insert into assignments values ('group:hr', 'reader', null);
            insert into grants values ('role:reader', 'allow', 'SELECT', 'table:sales/a%2Fb');
            insert into owners values ('schema:sales', 'user:bob');
        """)
    found = imported("tables", f"sqlite:///{path}", lake)
    assert grants(found) == {("role:reader", "allow", "SELECT", "table:sales/a%2Fb")}
    assert found.state.memberships == (("ann", "hr"),)
    assert not found.not_taken


WINDOWED = """
create table members ("user", "of"); create table service_admins ("user");
create table memberships ("user", "group", "from", "until"); create table owners (entity, owner, "from", "until");
create table assignments (principal, role, scope, "from", "until");
create table grants (grantee, effect, privilege, entity, "from", "until");
"""


def of_database(folder: Path, lake: Path, script: str) -> ImportResult:
    import sqlite3

    with sqlite3.connect(folder / "state.db") as connection:
        connection.executescript(script)
    return imported("tables", f"sqlite:///{folder / 'state.db'}", lake)


def test_the_time_in_which_a_row_of_a_database_holds_is_taken(tmp_path: Path, lake: Path) -> None:
    rows = """
    insert into grants values ('user:ann', 'allow', 'SELECT', 'schema:s', null, '2020-01-01T00:00:00Z');
    insert into memberships values ('ann', 'hr', '2020-01-01T00:00:00Z', '');
    insert into assignments values ('group:hr', 'reader', 'schema:s', null, null);
    """
    found = of_database(tmp_path, lake, WINDOWED + rows)
    assert found.state.to_tables()["grants"][0]["until"] == "2020-01-01T00:00:00Z"
    assert found.state.to_tables()["memberships"][0]["from"] == "2020-01-01T00:00:00Z"
    assert found.state.to_tables()["assignments"] == [{"principal": "group:hr", "role": "reader", "scope": "schema:s"}]
    assert not found.not_taken


@pytest.mark.parametrize(
    ("script", "stops"),
    [
        ("alter table grants add column revoked; update grants set revoked = 1", "grants.revoked"),
        ("alter table grants add column revoked; update grants set revoked = 0", "grants.revoked"),
        ("alter table grants add column revoked", ""),
        ("update grants set until = 1577836800", "grants.until"),
        ("update grants set effect = x'64656e79'", "grants.effect"),
        ("create table denials (grantee, privilege, entity)", "table-denials"),
        ('create view Suspended as select grantee as "User" from grants', "table-Suspended"),
        ("create table alembic_version (version_num)", ""),
        ("delete from grants", "no-rows"),
    ],
)
def test_what_a_database_has_beside_the_columns_of_a_state_stops(
    tmp_path: Path, lake: Path, script: str, stops: str
) -> None:
    grant = "insert into grants values ('user:ann', 'allow', 'SELECT', 'schema:s', null, null);"
    found = of_database(tmp_path, lake, f"{WINDOWED}{grant}{script};")
    assert [item.name for item in found.refused(strict=False, allow_partial=False)] == [stops][: bool(stops)]
    assert not found.refused(strict=False, allow_partial=False, accept=[stops])


CACHE: dict[str, Any] = {
    "serviceName": "hive", "serviceId": 2, "policyVersion": 12, "policyUpdateTime": 1673254471000, "auditMode": "audit-default",
    "serviceDef": {"id": 3, "name": "hive", "resources": [{"name": "database"}], "options": {"x": "true"}}, "totalCount": 0,
    "startIndex": 0, "pageSize": 0, "resultSize": 0, "queryTimeMS": 1, "securityZones": {}, "policies": [ranger_policy(1)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "stops"),
    [
        ({}, ""),
        ({"tagPolicies": {"serviceName": "tags", "serviceId": 4, "policies": []}}, ""),
        ({"tagPolicies": None}, ""),
        ({"tagPolicies": {"serviceName": "tags", "policies": [{"id": 9}]}}, "tagPolicies.policies"),
        ({"securityZones": {"eu": {"policies": []}}}, "securityZones"),
        ({"policyDeltas": [{"changeType": 1}]}, "policyDeltas"),
        ({"userRoles": {"ann": ["admin"]}}, "userRoles"),
    ],
)
def test_the_policy_cache_of_a_plug_in_is_read(tmp_path: Path, lake: Path, more: dict[str, Any], stops: str) -> None:
    path = tmp_path / "hive.json"
    path.write_text(json.dumps({**CACHE, **more}), encoding="utf-8")
    found = imported("ranger", str(path), lake)
    assert len(found.state.grants) == 2
    assert [item.name for item in found.refused(strict=False, allow_partial=False)] == [stops][: bool(stops)]


DENIAL = {"users": ["eve"], "accesses": [{"type": "select"}]}


@pytest.mark.parametrize(
    ("more", "stops"),
    [
        ({"policyType": "0"}, "policies.policyType"),
        ({"policyType": True}, "policies.policyType"),
        ({"policyType": 3}, "policy-type"),
        ({"denyPolicyItems": [{**DENIAL, "users": "eve"}]}, "policies.denyPolicyItems.users"),
        ({"denyPolicyItems": [{**DENIAL, "groups": "public"}]}, "policies.denyPolicyItems.groups"),
        ({"denyPolicyItems": [{**DENIAL, "accesses": None}]}, "policies.denyPolicyItems.accesses"),
        ({"denyPolicyItems": [{"users": ["eve"]}]}, "policies.denyPolicyItems.accesses"),
        ({"denyPolicyItems": [{"accesses": [{"type": "select"}]}]}, "empty-item"),
        ({"denyPolicyItems": {"0": DENIAL}}, "policies.denyPolicyItems"),
        ({"denyPolicyItems": None}, "policies.denyPolicyItems"),
        ({"resources": {"database": {"values": "hr"}}}, "policies.resources.database.values"),
        ({"resources": [{"database": {"values": ["hr"]}}]}, "policies.resources"),
        ({"dataMaskPolicyItems": [DENIAL]}, "items-of-another-type"),
    ],
)
def test_a_value_of_another_type_is_named_and_stops(
    tmp_path: Path, lake: Path, more: dict[str, object], stops: str
) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([ranger_policy(1, **{"denyPolicyItems": [DENIAL], **more})]), encoding="utf-8")
    found = imported("ranger", str(path), lake)
    assert stops in {item.name for item in found.refused(strict=False, allow_partial=False)}


def test_an_empty_answer_and_a_kept_answer_that_nobody_asks_for_stop(tmp_path: Path, lake: Path) -> None:
    empty = {"totalResults": 0, "Resources": []}
    folder = tmp_path / "saved"
    found = imported("scim", saved(folder, {"/Users": empty, "/Groups": empty}), lake)
    assert [item.name for item in found.refused(strict=False, allow_partial=False)] == ["no-rows"]
    saved(folder, {"/Denials": empty, "/_log": empty})
    found = imported("scim", str(folder), lake)
    assert [(item.name, item.what) for item in found.not_taken] == [("unread-file", "Denials.json")]


def test_a_list_by_number_is_asked_for_from_its_first_item(lake: Path) -> None:
    """Bitwarden's server gives an empty list unless it is asked for `startIndex` and `count`."""
    person = {"id": 1, "userName": "ann"}
    group = {"id": "g", "displayName": "hr", "members": [{"value": 1}]}

    def page(item: object) -> Callable[[dict[str, list[str]]], object]:
        return lambda query: (
            {"totalResults": 1, "Resources": [item]}
            if query.get("startIndex") == ["1"] and "count" in query
            else {"totalResults": 0}
        )

    with serving({"/Users": page(person), "/Groups": page(group)}) as url:
        found = imported("scim", url, lake)
    assert found.state.memberships == (("ann", "hr"),)


def test_groups_whose_names_differ_by_case_are_left_out(tmp_path: Path, lake: Path) -> None:
    people = {"totalResults": 1, "Resources": [{"id": "1", "userName": "ann"}]}
    named = [{"id": name, "displayName": name, "members": [{"value": "1"}]} for name in ("Hr", "hR", "it")]
    groups = {"totalResults": 3, "Resources": named}
    found = imported("scim", saved(tmp_path / "saved", {"/Users": people, "/Groups": groups}), lake)
    assert found.state.memberships == (("ann", "it"),)
    assert {name: count for name, (_, count) in found.by_name.items()} == {"repeated-group": 2}


ALTERNATIVES = """\
import: 1
title: Kinds
steps:
  - get: /items
    fields: {items: [{kind: text, who: text}]}
    each: items
    steps:
      - when: kind == 'member'
        rows: {memberships: {user: "{who}", group: hr}}
      - when: kind == 'note'
"""


def test_an_item_that_no_step_takes_stops(tmp_path: Path, lake: Path) -> None:
    document = tmp_path / "kinds.yaml"
    document.write_text(ALTERNATIVES, encoding="utf-8")
    items = [{"kind": kind, "who": "ann"} for kind in ("member", "note", "ban")]
    found = imported(str(document), saved(tmp_path / "saved", {"/items": {"items": items}}), lake)
    assert [(item.name, item.what) for item in found.not_taken] == [("no-step", '{"kind": "ban", "who": "ann"}')]
    assert found.refused(strict=False, allow_partial=False)
