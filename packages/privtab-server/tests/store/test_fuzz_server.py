"""Generated requests to every endpoint of a store's server: no 500, no answer outside the document, no wrong allow."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from authzen_server import Server
from jsonschema import Draft202012Validator
from openapi_requests import HOSTILE, WRONG, Generated, Requests
from store_server import ask, serve_store, token, write_tokens
from tenants_policy import POLICY

from privtab.base import Change, Entity, Request, last_name, parse_moment
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_server.store.journal import Entry
from privtab_server.store.store import Store

USERS = ("root", "ann", "root", "ben", "root", "eve")
ENTITIES = (
    "house:a",
    "house:b",
    "room:a/r",
    "room:b/r",
    "room:a/s",
    "role:a/x",
    "role:b/x",
    "role:b/y",
    "group:a/g",
    "user:b/eve",
    "box:1",
    "box:house:a/",
)
PRINCIPALS = ("user:root", "user:ann", "user:ben", "user:eve", "role:x", "role:y", "group:g", "role:a/x", "group:a/g")
NAMES = {
    "Entity": ENTITIES,
    "entity": ("house:a", "house:b", "room:a/r", "room:b/r", "room:a/s", "role:b/y", "box:1"),
    "entities": ("room:a/r", "room:b/r", "role:a/x", "box:1", "box:2", "user:b/eve"),
    "new": (*(f"box:{number}" for number in range(40)), "room:a/x"),
    "of": ("house:a", "house:b"),
    "scope": ("house:a", "room:b/r"),
    "grantee": PRINCIPALS,
    "principal": PRINCIPALS,
    "owner": PRINCIPALS,
    "user": USERS,
    "group": ("g", "h", "a/g"),
    "role": ("x", "y", "ra", "rb", "a/x", "b/y"),
    "resource": (
        "box:house:a/",
        "box:house:b/",
        "role:a/x",
        "role:b/y",
        "role:b/z",
        "group:a/g",
        "group:b/h",
        "user:b/eve",
    ),
    "operation": ("create", "create", "create", "add", "remove", "drop", "grant_role", "enter"),
    "about": PRINCIPALS,
    "Idempotency-Key": tuple(map(str, range(400))),
    "If-Match": ('"1"', '"5"', '"99"', "7"),
    "from": ("2020-01-01T00:00:00Z",),
    "until": ("2090-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
}
AUTHORISING = {
    "grants": ("grant_privilege",),
    "owners": ("set_owner",),
    "assignments": ("grant_role", "revoke_role"),
    "memberships": ("add_member", "remove_member"),
    "members": ("add", "remove"),
}
"""By the table of a row, the operations that may have changed it: written down here once more."""
CREATING = 10 * len(USERS)
"""Each time after this many requests, the first user, who may, creates an entity with a flat id that no other request names."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_generated_requests_change_only_what_the_reference_allows(count: int, tmp_path: Path) -> None:
    policy, url = tmp_path / "houses.yaml", tmp_path / "houses.db"
    # Owners come and go at random; without `root`, soon nobody could change anything.
    text = re.sub(r"owner \(\w+(, \w+)*\)", r"\g<0> or service admin", POLICY)
    policy.write_text(text, encoding="utf-8")
    program = load_program(policy)
    store = Store.create(str(url), program, administrators=["root"])
    for user, house in (("ann", "a"), ("ben", "b")):
        owners = [{"entity": f"{entity}{house}", "owner": f"user:{user}"} for entity in ("house:", f"role:{house}/r")]
        store.change(Request(user="root", action="create", resource=Entity("house", house)), add={"owners": owners})
    server = serve_store(
        tmp_path, [url, "-p", policy, "--token-file", write_tokens(tmp_path / "tokens", sorted({*USERS}))]
    )
    try:
        placed = {"operation": "create", "resource": "box:house:a/", "new": "box:0"}
        assert ask(server, "POST", "/operations", "root", placed).json()["changes"][-1]["row"] == {
            "entity": "box:0",
            "parent": "house:a",
        }
        allowed, statuses = fuzzed(server, store, count)
    finally:
        assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
    assert store.verify() == []
    assert sum("new" in entry.request for entry in store.log()) > count / CREATING
    # It would find nothing if nothing were allowed, or nothing refused.
    assert allowed > count / CREATING + count / 100, statuses
    assert {200, 400, 403, 404, 409, 422} <= statuses.keys(), statuses


def fuzzed(server: Server, store: Store, count: int) -> tuple[int, dict[int, int]]:
    """Send requests and check each answer; the number of changes, and how often each status came."""
    document = server.get("/store/v1/openapi.json").json()
    requests = Requests(document, 9, NAMES)
    allowed, statuses = 0, dict[int, int]()
    for number, request in enumerate(islice(requests, count)):
        user = USERS[number % len(USERS)]
        generated = request if number % CREATING else creation(document, number)
        path = with_known_row(generated.path, store, requests.random)
        answer = server.session.request(
            generated.method,
            server.url + path,
            params=generated.query,
            headers={**generated.headers, "Authorization": f"Bearer {token(user)}", "Content-Type": "application/json"},
            data=generated.body,
            timeout=30,
        )
        said = f"request {number}: {user} {generated.method} {path} {generated.query} {generated.headers} {generated.body!r}"
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        if path.endswith("/metrics") and answer.status_code == 200:
            continue
        if answer.headers["Content-Type"] != "application/json":
            # Paths and parameters that reach no endpoint.
            assert answer.status_code in (400, 404, 405), f"{said}: {answer.text}"
            continue
        described = generated.operation["responses"].get(str(answer.status_code))
        assert described is not None, f"{said}: {answer.status_code} {answer.text}"
        schema = {**document, "$ref": None, **described["content"]["application/json"]["schema"]}
        Draft202012Validator({key: part for key, part in schema.items() if part is not None}).validate(answer.json())
        content = answer.json()
        outcomes = content.get("results", [content]) if generated.method != "GET" and answer.status_code == 200 else []
        for outcome in outcomes:
            if "error" in outcome or "dry_run" in outcome or outcome["repeated"]:
                continue
            entry = store.log(outcome["number"] - 1, 1)[0]
            assert (entry.number, entry.actor) == (outcome["number"], user), said
            assert [change.to_json() for change in entry.changes] == outcome["changes"], said
            check(store, entry, said)
            allowed += 1
    return allowed, statuses


def creation(document: Mapping[str, Any], number: int) -> Generated:
    """The request that creates an entity with a flat id in one of the houses."""
    path, house = "/store/v1/operations", "ab"[number // CREATING % 2]
    body = {"operation": "create", "resource": f"box:house:{house}/", "new": f"box:of request {number}"}
    return Generated("POST", path, document["paths"][path]["post"], {}, {}, json.dumps(body).encode())


def with_known_row(path: str, store: Store, chance: random.Random) -> str:
    """A path that names a row, for some requests with one that is there."""
    from privtab_server.store.database import row_id

    table = path.split("/")[4] if path.count("/") == 5 else ""
    rows = store.rows().get(table, []) if table else []
    return f"/store/v1/rows/{table}/{row_id(chance.choice(rows))}" if rows and chance.random() < 0.8 else path


def check(store: Store, entry: Entry, said: str) -> None:
    """The reference allows the request of a change, and the request authorises each of its rows."""
    state, findings = validate(store.program, from_tables(store.rows(number=entry.number - 1), "before"))
    assert not [finding for finding in findings if finding.severity == "error"], said
    request = Request.from_json(entry.request)
    decision = Reference(store.program, state.at(parse_moment(entry.at))).decide(request)
    assert decision.allowed, said
    effects = [filled(effect.change, entry) for effect in decision.effects if effect.change is not None]
    deletes = bool(entry.request.get("delete"))
    assert not deletes or request.action in ("drop", "remove"), said
    for change in entry.changes:
        assert (
            change in effects
            or is_about(store.program, change, effects)
            or (deletes and change.action == "remove" and lies_in(store.program, change, request.resource))
            or is_placed(change, entry)
            or is_authorised(change, request)
        ), f"{said}: {change}"


def is_about(program: Program, change: Change, effects: list[Change]) -> bool:
    """Whether an effect removes every row about a principal, and this is one."""
    del program
    tables = {effect.table: Entity.parse(effect.about) for effect in effects if effect.about is not None}
    principal = tables.get(change.table)
    return principal is not None and change.action == "remove" and names(change, principal)


def filled(effect: Change, entry: Entry) -> Change:
    """An effect with the new entity in the place of the one that the request leaves off."""
    if effect.row is None:
        return effect
    row = {name: entry.request.get("new") if text is None else text for name, text in effect.row.items()}
    return Change(effect.action, effect.table, row=row)


def is_placed(change: Change, entry: Entry) -> bool:
    """Whether a change places the new entity that a request creates in what its resource names."""
    new, parent = entry.request.get("new"), entry.request["resource"]["id"].removesuffix("/")
    return new is not None and change == Change("add", "entities", row={"entity": new, "parent": parent})


def names(change: Change, principal: Entity) -> bool:
    cells = set((change.row or {}).values())
    return any({name, f"{principal.type}:{name}"} & cells for name in (last_name(principal.id), principal.id))


def lies_in(program: Program, change: Change, resource: Entity) -> bool:
    row = change.row or {}
    entity = row.get("entity") or row.get("of") or row.get("scope")
    inside = entity is not None and (entity == str(resource) or entity.partition(":")[2].startswith(f"{resource.id}/"))
    return inside or (program.entities[resource.type].principal is not None and names(change, resource))


def is_authorised(change: Change, request: Request) -> bool:
    row: Mapping[str, str | None] = change.row or {}
    if request.action not in AUTHORISING.get(change.table, ()):
        return False
    name = last_name(request.resource.id)
    match change.table:
        case "grants" | "owners":
            return row["entity"] == str(request.resource)
        case "assignments":
            return request.resource.type == "role" and row["role"] in (name, request.resource.id) and "scope" not in row
        case "memberships":
            return request.resource.type == "group" and row["group"] in (name, request.resource.id)
        case _:
            house = f"house:{request.resource.names[0]}"
            return request.resource.type == "user" and row == {"user": name, "of": house}


# Without `owners` of metalakes: whoever came to own `test` would end all changes.
PARTS = (
    "test", "users", "groups", "roles", "permissions", "objects", "catalogs", "schemas", "tables", "grant",
    "revoke", "catalog", "schema", "table", "c", "c.s", "c.s.t", "s", "t", "role1", "group1", "user1", "role",
)  # fmt: skip
CALLS: tuple[tuple[str, str], ...] = (
    ("POST", ""), ("GET", ""), ("GET", "test"), ("POST", "test/users"), ("GET", "test/users?details=true"),
    ("DELETE", "test/users/user1"), ("POST", "test/groups"), ("GET", "test/groups/group1"), ("DELETE", "test/groups/group1"),
    ("POST", "test/roles"), ("GET", "test/roles/role1"), ("DELETE", "test/roles/role1"), ("POST", "test/catalogs"),
    ("POST", "test/catalogs/c/schemas"), ("POST", "test/catalogs/c/schemas/s/tables"), ("GET", "test/catalogs/c/schemas/s/tables"),
    ("DELETE", "test/catalogs/c/schemas/s"), ("GET", "test/objects/catalog/c/roles"), ("GET", "test/owners/table/c.s.t"),
    ("PUT", "test/owners/table/c.s.t"), ("PUT", "test/permissions/users/user1/grant"),
    ("PUT", "test/permissions/groups/group1/revoke"), ("PUT", "test/permissions/roles/role1/table/c.s.t/grant"),
    ("PUT", "test/permissions/roles/role1/schema/c.s/revoke"), ("PUT", "test/permissions/roles/role1/metalake/test/grant"),
    ("PUT", "test/permissions/roles/role1"), ("GET", "test/catalogs?details=true"), ("PUT", "test/catalogs/c"),
    ("POST", "test/tags"), ("PUT", "test/tags/tag1"), ("DELETE", "test/tags/tag1"), ("GET", "test/tags/tag1/objects"),
    ("POST", "test/objects/schema/c.s/tags"), ("GET", "test/objects/table/c.s.t/tags?details=true"),
    ("PUT", "test/permissions/roles/role1/tag/tag1/grant"), ("POST", "test/jobs/templates"), ("PUT", "test/jobs/templates/job1"),
    ("GET", "test/jobs/templates?details=true"), ("DELETE", "test/jobs/templates/job1"),
)  # fmt: skip
NEW = {"": "test", "groups": "group1", "roles": "role1", "catalogs": "c", "schemas": "s", "tables": "t", "tags": "tag1"}
SEVERAL = ("test/roles", "test/permissions/roles/role1")
"""Calls that make several changes."""
ENOUGH = ("test", "user1", "group1", "role1", "c", "s", "t")


@pytest.mark.slow
@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_generated_calls_of_another_api_never_fail(count: int, tmp_path: Path) -> None:
    url, program = tmp_path / "grants.db", load_program("gravitino/1.1.0")
    store = Store.create(str(url), program, administrators=["root"])
    tokens = write_tokens(tmp_path / "tokens", ["root", "eve", "user1"])
    server = serve_store(tmp_path, [url, "-p", "gravitino/1.1.0", "--token-file", tokens, "--api", "gravitino"])
    chance, number = random.Random(7), 1
    done, statuses = 0, dict[tuple[int, str], int]()
    try:
        for method, path, body in islice(calls(chance), count):
            user = chance.choice(("root", "root", "user1", "eve"))
            headers = {"Authorization": f"Bearer {token(user)}", "Content-Type": "application/json"}
            answer = server.session.request(
                method, f"{server.url}/api/metalakes/{path}", data=json.dumps(body), headers=headers, timeout=30
            )
            said = f"{user} {method} {path} {body}"
            assert answer.status_code in (200, 400, 403, 404, 405, 409), f"{said}: {answer.status_code} {answer.text}"
            key = answer.status_code, f"{method} {path}" if answer.status_code == 200 else answer.text[:100]
            statuses[key] = statuses.get(key, 0) + 1
            entries = store.log(number)
            assert not entries or answer.status_code == 200 or path in SEVERAL, f"{said}: {answer.text}"
            for entry in entries:
                assert entry.actor == user, said
                state, _ = validate(program, from_tables(store.rows(number=entry.number - 1), "before"))
                assert Reference(program, state).decide(Request.from_json(entry.request)).allowed, said
                number, done = entry.number, done + 1
    finally:
        assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
    assert store.verify() == []
    assert done > count / 40, statuses


def calls(chance: random.Random) -> Iterator[tuple[str, str, Any]]:
    """Method, path below `/api/metalakes` and body of calls, most of them meaningful."""
    while True:
        method, path = chance.choice(CALLS)
        if chance.random() < 0.1:
            words = [
                chance.choice((*PARTS, *(quote(text, safe="") for text in HOSTILE[:8])))
                for _ in range(chance.randrange(8))
            ]
            method, path = chance.choice(("GET", "POST", "PUT", "DELETE")), "/".join(words)
        privilege = {
            "name": chance.choice(("SELECT_TABLE", "USE_SCHEMA", "use_catalog", "APPLY_TAG", "x")),
            "condition": chance.choice(("ALLOW", "DENY")),
        }
        update = {
            "@type": chance.choice(("setProperty", "removeProperty", "updateComment", "updateTemplate", "rename")),
            "property": "p",
            "value": "v",
            "newTemplate": {"newArguments": ["a"], "new": 1},
        }
        body: dict[str, Any] = {
            "properties": {"p": "w"},
            "updates": [update],
            "tagsToAdd": ["tag1"],
            "tagsToRemove": chance.choice(([], ["tag1"])),
            "jobTemplate": {"name": "job1", "jobType": "SHELL", "executable": "x"},
            "overrides": chance.choice(([], [{"fullName": "c", "type": "CATALOG", "privileges": [privilege]}])),
            "name": NEW.get(path.rpartition("/")[2], "user1") if chance.random() < 0.8 else chance.choice(ENOUGH),
            "type": "USER",
            "roleNames": ["role1"],
            "privileges": [privilege],
            "securableObjects": [{"fullName": "c.s.t", "type": "TABLE", "privileges": [privilege]}],
        }
        if chance.random() < 0.15:
            part = chance.choice((body, body, update, body["jobTemplate"]))
            part[chance.choice(sorted(part))] = chance.choice((*WRONG, *HOSTILE))
        yield method, path, body
