"""The paths and payloads of Gravitino: the curl examples of its document as they are, and its walkthrough of 13 steps."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import requests
from authzen_server import Server
from checkout import ROOT
from store_server import ask, serve_store, write_tokens

from privtab.pipeline import load_program
from privtab_server.store.store import Store

DOCUMENT = ROOT / "tests" / "support" / "gravitino_examples.txt"
API = "//api/metalakes"
USERS = ("admin", "Manager", "Staff", "eve")
pytestmark = pytest.mark.slow


def examples() -> list[str]:
    """The curl commands of the document, in its order."""
    return re.findall(r"^curl .*?localhost:8090\S*$", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose anonymous user is a service administrator, as the examples have no token."""
    folder = tmp_path_factory.mktemp("gravitino")
    url, program = folder / "grants.db", load_program("gravitino/1.1.0")
    users = ["--anonymous", "anonymous", "--auditor", "admin"]
    Store.create(str(url), program, administrators=["anonymous", "admin"])
    tokens = write_tokens(folder / "tokens", USERS)
    started = serve_store(
        folder,
        [url, "-p", "gravitino/1.1.0", "--api", "gravitino", "--token-file", tokens, *users],
    )
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()
    assert Store.open(str(url), program).verify() == []


def done(server: Server, method: str, path: str, user: str | None = None, body: Any = None) -> Any:
    answer = ask(server, method, API + path, user, body)
    assert answer.status_code == 200, f"{method} {path}: {answer.text}"
    assert answer.headers["Content-Type"] == "application/vnd.gravitino.v1+json"
    content = answer.json()
    assert content.pop("code") == 0
    return content


def refused(server: Server, method: str, path: str, user: str | None, body: Any = None) -> tuple[int, int, str]:
    answer = ask(server, method, API + path, user, body)
    content = answer.json()
    return answer.status_code, content["code"], content["type"]


def table(server: Server, metalake: str, user: str | None, *names: str) -> None:
    """Create a catalog, a schema and a table."""
    catalog, schema, last = names
    done(server, "POST", f"/{metalake}/catalogs", user, {"name": catalog, "type": "RELATIONAL", "provider": "hive"})
    done(server, "POST", f"/{metalake}/catalogs/{catalog}/schemas", user, {"name": schema})
    done(server, "POST", f"/{metalake}/catalogs/{catalog}/schemas/{schema}/tables", user, {"name": last})


ROLE = {"name": "role1"}
PRIVILEGE = {"name": "select_table", "condition": "allow"}
OBJECT = {"fullName": "catalog1.schema1.table1", "type": "table", "privileges": [PRIVILEGE]}
MADE = {"name": "role1", "properties": {"k1": "v1"}, "securableObjects": [OBJECT]}
ANSWERS: tuple[tuple[str, Any], ...] = (
    ("POST users", {"name": "user1", "roles": []}),
    ("GET users/", ["anonymous", "user1"]),
    ("GET users/?details=true", [{"name": "anonymous", "roles": []}, {"name": "user1", "roles": []}]),
    ("GET users/user1", {"name": "user1", "roles": []}),
    ("DELETE users/user1", True),
    ("POST groups", {"name": "group1", "roles": []}),
    ("GET groups/", ["group1"]),
    ("GET groups/?details=true", [{"name": "group1", "roles": []}]),
    ("GET groups/group1", {"name": "group1", "roles": []}),
    ("DELETE groups/group1", True),
    ("POST roles", MADE),
    ("GET roles/", ["role1"]),
    ("GET objects/catalog/catalog1/roles", []),
    ("GET objects/schema/catalog1.schema1/roles", []),
    ("GET roles/role1", MADE),
    ("DELETE roles/role1", [True, True]),
    (
        "PUT permissions/roles/role1/schema/catalog1.schema1/grant",
        {**ROLE, "properties": {}, "securableObjects": [{**OBJECT, "fullName": "catalog1.schema1", "type": "schema"}]},
    ),
    (
        "PUT permissions/roles/role1/table/catalog1.schema1.table1/grant",
        {
            **ROLE,
            "properties": {},
            "securableObjects": [{**OBJECT, "fullName": "catalog1.schema1", "type": "schema"}, OBJECT],
        },
    ),
    (
        "PUT permissions/roles/role1/schema/catalog1.schema1/revoke",
        {**ROLE, "properties": {}, "securableObjects": [OBJECT]},
    ),
    (
        "PUT permissions/roles/role1/table/catalog1.schema1.table1/revoke",
        {**ROLE, "properties": {}, "securableObjects": []},
    ),
    ("PUT permissions/users/user1/grant", {"name": "user1", "roles": ["role1"]}),
    ("PUT permissions/users/user1/revoke", {"name": "user1", "roles": []}),
    ("PUT permissions/groups/group1/grant", {"name": "group1", "roles": ["role1"]}),
    ("PUT permissions/groups/group1/revoke", {"name": "group1", "roles": []}),
    ("GET owners/table/catalog1.schema1.table1", {"name": "anonymous", "type": "user"}),
    ("PUT owners/table/catalog1.schema1.table1", True),
)
"""What each example of the document is answered with, beside `code` and `audit`."""


def test_every_curl_example_of_the_document_runs_but_for_host_and_port(server: Server) -> None:
    curl = shutil.which("curl")
    assert curl is not None
    done(server, "POST", "", None, {"name": "test"})
    table(server, "test", None, "catalog1", "schema1", "table1")
    found = examples()
    assert len(found) == len(ANSWERS) == 26
    for command, (call, expected) in zip(found, ANSWERS, strict=True):
        if "permissions/" in call or "owners/" in call:
            # The examples before have removed them.
            for kind, name in (("users", "user1"), ("groups", "group1"), ("roles", "role1")):
                body = {"name": name}
                assert ask(server, "POST", f"{API}/test/{kind}", None, body).status_code in (200, 409)
        words = shlex.split(command.replace("\\\n", " ").replace("http://localhost:8090", server.url))
        assert words[0] == "curl"
        assert f"{words[2]} {words[-1].removeprefix(f'{server.url}/api/metalakes/test/')}" == call
        run = subprocess.run([curl, "-sS", "--fail-with-body", *words[1:]], capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{call}: {run.stdout}{run.stderr}"
        answer = without_audit(json.loads(run.stdout))
        assert answer.pop("code") == 0
        content = list(answer.values())
        assert content == (expected if "DELETE roles" in call else [expected]), call
    assert done(server, "GET", "/test/owners/table/catalog1.schema1.table1")["owner"]["name"] == "user1"


def without_audit(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_audit(part) for name, part in value.items() if name != "audit"}
    return [without_audit(part) for part in value] if isinstance(value, list) else value


def test_the_walkthrough_of_13_steps(server: Server) -> None:
    lake = "/walk"
    assert refused(server, "POST", "", "Staff", {"name": "walk"})[0] == 403
    done(server, "POST", "", "admin", {"name": "walk"})  # 1
    done(server, "POST", f"{lake}/users", "admin", {"name": "Manager"})  # 2
    assert refused(server, "POST", f"{lake}/users", "Manager", {"name": "Staff"})[0] == 403
    owner = {"name": "Manager", "type": "USER"}
    assert done(server, "PUT", f"{lake}/owners/metalake/walk", "admin", owner) == {"set": True}  # 3
    assert refused(server, "PUT", f"{lake}/owners/metalake/walk", "admin", owner)[0] == 403
    done(server, "POST", f"{lake}/users", "Manager", {"name": "Staff"})  # 4
    role = {
        "name": "catalog_manager",
        "securableObjects": [
            {"fullName": "walk", "type": "metalake", "privileges": [{"name": "create_catalog", "condition": "allow"}]}
        ],
    }
    assert (
        done(server, "POST", f"{lake}/roles", "Manager", role)["role"]["securableObjects"] == role["securableObjects"]
    )  # 5
    assert refused(server, "POST", f"{lake}/catalogs", "Staff", {"name": "hive"})[0] == 403
    payload = {"roleNames": ["catalog_manager"]}
    assert done(server, "PUT", f"{lake}/permissions/users/Staff/grant", "Manager", payload)["user"]["roles"] == [
        "catalog_manager"
    ]  # 6
    table(server, "walk", "Staff", "hive", "hive_db", "hive_table")  # 7, 8, 9
    table(server, "walk", "Staff", "mysql", "mysql_db", "mysql_table")  # 10, 11, 12
    for catalog in ("hive", "mysql"):  # 13
        path = f"{lake}/catalogs/{catalog}/schemas/{catalog}_db/tables"
        assert done(server, "GET", f"{path}/{catalog}_table", "Staff")["table"]["name"] == f"{catalog}_table"
        assert [found["name"] for found in done(server, "GET", path, "Staff")["identifiers"]] == [f"{catalog}_table"]
        assert refused(server, "GET", f"{path}/{catalog}_table", "eve") == (403, 1008, "ForbiddenException")
    # The Manager owns the metalake, and so may do the same.
    assert done(server, "GET", f"{lake}/catalogs/hive/schemas/hive_db", "Manager")["schema"]["name"] == "hive_db"
    assert [found["name"] for found in done(server, "GET", f"{lake}/catalogs", "Manager")["identifiers"]] == [
        "hive",
        "mysql",
    ]


def test_errors_are_those_of_the_system_and_outsiders_learn_nothing(server: Server) -> None:
    lake = "/errors"
    done(server, "POST", "", "admin", {"name": "errors"})
    done(server, "POST", f"{lake}/users", "admin", {"name": "Staff"})
    done(server, "POST", f"{lake}/roles", "admin", {"name": "keeper", "securableObjects": []})
    for path, name, what in (
        (f"{lake}/users", "Staff", "User"),
        (f"{lake}/roles", "keeper", "Role"),
        ("", "errors", "Metalake"),
    ):
        answer = refused(server, "POST", path, "admin", {"name": name})
        assert answer == (409, 1004, f"{what}AlreadyExistsException")
    manage = {"privileges": [{"name": "MANAGE_GRANTS", "condition": "ALLOW"}]}
    done(server, "PUT", f"{lake}/permissions/roles/keeper/metalake/errors/grant", "admin", manage)
    done(server, "PUT", f"{lake}/permissions/users/admin/grant", "admin", {"roleNames": ["keeper"]})
    grant = {"privileges": [{"name": "USE_CATALOG", "condition": "ALLOW"}]}
    for method, path, body, kind in (
        ("GET", f"{lake}/users/none", None, "NoSuchUserException"),
        ("GET", f"{lake}/roles/none", None, "NoSuchRoleException"),
        ("GET", f"{lake}/catalogs/none", None, "NoSuchCatalogException"),
        ("PUT", f"{lake}/permissions/users/none/grant", {"roleNames": ["keeper"]}, "NoSuchUserException"),
        ("PUT", f"{lake}/permissions/users/Staff/grant", {"roleNames": ["none"]}, "NoSuchRoleException"),
        ("PUT", f"{lake}/permissions/roles/keeper/catalog/none/grant", grant, "NoSuchMetadataObjectException"),
        ("PUT", f"{lake}/permissions/roles/none/metalake/errors/grant", grant, "NoSuchRoleException"),
        ("PUT", f"{lake}/owners/role/keeper", {"name": "none", "type": "USER"}, "NoSuchUserException"),
        ("GET", f"{lake}/catalogs/c/tables/t", None, "NotFoundException"),
    ):
        assert refused(server, method, path, "admin", body) == (404, 1003, kind), path
    wrong = (400, 1001, "IllegalArgumentException")
    malformed: tuple[tuple[str, str, Any], ...] = (
        ("POST", f"{lake}/users", {}),
        ("POST", f"{lake}/users", {"name": 1}),
        ("PUT", f"{lake}/permissions/users/Staff/grant", {"roleNames": "keeper"}),
        (
            "PUT",
            f"{lake}/permissions/roles/keeper/metalake/errors/grant",
            {"privileges": [{"name": "x", "condition": "ALLOW"}]},
        ),
        (
            "PUT",
            f"{lake}/permissions/roles/keeper/metalake/errors/grant",
            {"privileges": [{"name": "USE_CATALOG", "condition": "x"}]},
        ),
        ("PUT", f"{lake}/permissions/roles/keeper/planet/errors/grant", {"privileges": []}),
        ("PUT", f"{lake}/owners/role/keeper", {"name": "g", "type": "GROUP"}),
        ("PUT", f"{lake}/permissions/roles/keeper/table/t/grant", grant),
        ("PUT", f"{lake}/permissions/roles/keeper/catalog/c.s/revoke", {"privileges": "x"}),
    )
    for method, path, body in malformed:
        assert refused(server, method, path, "admin", body) == wrong, body
    for method, path, body in (
        ("GET", f"{lake}/users/none", None),
        ("GET", f"{lake}/users/", None),
        ("GET", "/unknown/users/", None),
        ("PUT", f"{lake}/permissions/users/none/grant", {"roleNames": ["keeper"]}),
        ("POST", f"{lake}/users", {"name": "Staff"}),
    ):
        assert refused(server, method, path, "eve", body) == (403, 1008, "ForbiddenException"), path
    assert done(server, "GET", "", "eve") == {"metalakes": []}
    # Staff sees himself alone.
    assert done(server, "GET", f"{lake}/users/", "Staff") == {"names": ["Staff"]}
    assert done(server, "DELETE", f"{lake}/users/none", "admin") == {"removed": False}


def test_deletion_leaves_no_rights(server: Server) -> None:
    lake = "/gone"
    done(server, "POST", "", "admin", {"name": "gone"})
    table(server, "gone", "admin", "c", "s", "t")
    done(server, "POST", f"{lake}/users", "admin", {"name": "Staff"})
    on = {"fullName": "c", "type": "CATALOG", "privileges": [{"name": "USE_CATALOG", "condition": "ALLOW"}]}
    role = {"name": "gone_role", "securableObjects": [on]}
    done(server, "POST", f"{lake}/roles", "admin", role)
    done(server, "PUT", f"{lake}/permissions/users/Staff/grant", "admin", {"roleNames": ["gone_role"]})
    assert done(server, "GET", f"{lake}/objects/catalog/c/roles", "admin") == {"names": ["gone_role"]}
    assert done(server, "GET", f"{lake}/catalogs/c", "Staff")["catalog"]["name"] == "c"
    # A role of another metalake with this name would have the same grants.
    done(server, "POST", "", "admin", {"name": "other"})
    assert refused(server, "POST", "/other/roles", "admin", role)[0] in (409, 403)
    assert done(server, "DELETE", f"{lake}/roles/gone_role", "admin") == {"dropped": True, "deleted": True}
    assert refused(server, "GET", f"{lake}/catalogs/c", "Staff")[0] == 403
    done(server, "POST", f"{lake}/roles", "admin", {"name": "gone_role", "securableObjects": []})
    assert done(server, "GET", f"{lake}/users/Staff", "admin")["user"]["roles"] == []
    assert refused(server, "DELETE", f"{lake}/catalogs/c", "admin") == (409, 1005, "NonEmptyCatalogException")
    assert refused(server, "PATCH", f"{lake}/catalogs/c", "admin", {}) == (405, 1006, "UnsupportedOperationException")
    done(server, "DELETE", f"{lake}/catalogs/c?force=True", "admin")
    assert done(server, "GET", f"{lake}/catalogs", "admin") == {"identifiers": []}
    assert refused(server, "GET", f"{lake}/catalogs/c/schemas/s", "admin")[0] == 404


def test_names_with_signs_of_paths_are_names(server: Server) -> None:
    lake = "/signs%2F%25"
    done(server, "POST", "", "admin", {"name": "signs/%"})
    for name, path in (("a/b", "a%2Fb"), ("50%", "50%25"), ("名前 'x'", "%E5%90%8D%E5%89%8D%20'x'")):
        done(server, "POST", f"{lake}/users", "admin", {"name": name})
        assert done(server, "GET", f"{lake}/users/{path}", "admin")["user"]["name"] == name
    assert done(server, "GET", f"{lake}/users", "admin")["names"] == ["50%", "a/b", "admin", "名前 'x'"]


@pytest.mark.parametrize("kind", ["catalogs", "users", "groups", "roles", "tags"])
def test_of_eight_creations_at_the_same_time_one_succeeds(server: Server, kind: str) -> None:
    lake = f"/race_{kind}"
    done(server, "POST", "", "admin", {"name": lake[1:]})

    def create(_: int) -> int:
        return ask(
            replace(server, session=requests.Session()), "POST", f"{API}{lake}/{kind}", "admin", {"name": kind}
        ).status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(create, range(8))) == [200] + [409] * 7
    entries = ask(server, "GET", "/journal?after=1", "admin").json()["entries"]
    assert len([entry for entry in entries if f"{lake[1:]}/{kind}" in str(entry["resource"])]) == 1


def test_the_version_is_that_of_the_policy(server: Server) -> None:
    assert ask(server, "GET", "//api/version", "admin").json()["version"]["version"] == "1.1.0"
