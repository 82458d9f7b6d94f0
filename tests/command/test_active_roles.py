"""Active roles through the clients, AuthZEN and the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, Embedded, Request
from privtab.base.errors import InvalidRequest
from privtab.base.request import AccessDenied, Entity
from privtab.bundle import state_bundle
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.nodes import Assignment, Grant, State
from privtab_server.authzen.messages import SearchKind
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: {item:}}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
tables:
  item:
    read: READ (item) or owner (shelf, item)
    burn: WRITE (item)
"""
STATE = """\
grants:
  - {grantee: "role:clerk", effect: allow, privilege: READ, entity: "store:s"}
assignments:
  - {principal: "user:ben", role: clerk}
owners:
  - {entity: "item:s/a/y", owner: "user:cleo"}
"""
NARROWED = POLICY.replace("creator: true}}", "creator: true}, active_roles: request}")
ITEM = "item:s/a/y"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    for name, text in (("shop.yaml", NARROWED), ("plain.yaml", POLICY), ("state.yaml", STATE)):
        (folder / name).write_text(text, encoding="utf-8")
    program = load_program(folder / "shop.yaml")
    state = State(
        assignments=tuple(Assignment(principal="user:ben", role=role, scope=None) for role in ("clerk", "idle")),
        grants=(Grant(grantee="role:clerk", effect="allow", privilege="READ", entity=Entity("store", "s")),),
    )
    (folder / "bundles").mkdir()
    (folder / "bundles/policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "bundles/state.tar.gz").write_bytes(state_bundle(program, state))
    return folder


@pytest.fixture(scope="module", params=["python", "opa"])
def client(folder: Path, request: pytest.FixtureRequest, opa_binary: Path) -> Iterator[Client | Embedded]:
    bundles = folder / "bundles"
    if request.param == "python":
        yield Embedded(bundles)
        return
    with (
        OpaServer(sorted(bundles.iterdir()), binary=opa_binary) as server,
        Client(server.url, cache_size=100) as client,
    ):
        yield client


def test_each_call_of_a_client_takes_them(client: Client | Embedded) -> None:
    assert client.check("ben", "read", ITEM)
    assert not client.check("ben", "read", ITEM, active_roles=[])
    assert client.check("ben", "read", ITEM, active_roles=["clerk"])
    assert client.check("ben", "read", ITEM, active_roles=["role:clerk", "idle"])
    assert not client.check("ben", "read", ITEM, active_roles=["idle"])
    assert client.check("ben", "read", ITEM), "answers are remembered with the roles that were active"
    assert client.decide("ben", "read", ITEM, active_roles=["idle"]).missing[0] == (f"READ ({ITEM})",)
    with pytest.raises(AccessDenied, match=r"does not hold the active role\(s\) `boss`"):
        client.require("ben", "read", ITEM, active_roles=["boss"])
    items = ["s/a/x", "s/a/y"]
    assert client.visible("ben", "read", "item", items, active_roles=["clerk"]) == items
    assert client.visible("ben", "read", "item", items, active_roles=["idle"]) == []
    assert client.visible("ben", "read", "item", items, active_roles=["boss"]) == []
    assert client.filter("ben", "read", [ITEM], active_roles=[]) == []
    requests = [
        Request(user="ben", action="read", resource=Entity.parse(ITEM), active_roles=active)
        for active in (None, (), ("clerk",), ("idle",), ("boss",))
    ]
    assert client.check_many(requests) == [True, False, True, False, False]
    assert client.check_many(requests * 300) == [True, False, True, False, False] * 300


def test_invalid_lists_of_active_roles_are_refused(client: Client | Embedded) -> None:
    bad: tuple[Any, ...] = ("clerk", [""], [1], 5, ["*"])
    for active in bad:
        with pytest.raises(InvalidRequest, match="role"):
            client.check("ben", "read", ITEM, active_roles=active)


def test_a_policy_that_does_not_read_them_refuses_the_argument(folder: Path, tmp_path: Path) -> None:
    program = load_program(folder / "plain.yaml")
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, State()))
    with pytest.raises(InvalidRequest, match="does not let requests name active roles"):
        Embedded(tmp_path).check("ben", "read", ITEM, active_roles=["clerk"])


def test_authzen_reads_them_from_the_context(folder: Path) -> None:
    service = Service(LocalDecisionPoint(Embedded(folder / "bundles")), system="shop")
    body = {
        "subject": {"type": "user", "id": "ben"},
        "action": {"name": "read"},
        "resource": {"type": "item", "id": "s/a/y"},
    }

    def decided(active: object) -> Any:
        return asyncio.run(service.evaluation({**body, "context": {"active_roles": active}}))

    assert decided(["clerk"])["decision"]
    assert not decided(["idle"])["decision"]
    assert decided(["boss"])["context"]["error"]["kind"] == "role_not_held"
    for wrong in ("clerk", None, [1], True):
        answer = decided(wrong)
        assert not answer["decision"]
        assert "must be a list of names" in answer["context"]["error"]["message"]
    for kind, part in ((SearchKind.RESOURCE, {"resource": {"type": "item"}}), (SearchKind.ACTION, {"action": {}})):
        request = {**body, **part}
        found = [
            asyncio.run(service.search(kind, {**request, "context": {"active_roles": active}}))["results"]
            for active in (["clerk"], ["idle"], ["boss"])
        ]
        assert found[1:] == [[], []]
        assert bool(found[0]) is (kind is SearchKind.ACTION), "the state names no item"


def test_commands_take_active_roles(privtab: Callable[..., Any], folder: Path) -> None:
    options = ["-p", folder / "shop.yaml", "-s", folder / "state.yaml"]
    allowed = privtab("explain", "ben", "read", ITEM, "--caller", "role:clerk", *options)
    assert allowed.out.startswith(f"ALLOW  user:ben read {ITEM} as clerk\n")
    denied = privtab("explain", "ben", "read", ITEM, "--caller", "no-roles", *options)
    assert denied.out.startswith(f"DENY  user:ben read {ITEM} as no role\n")
    assert "what would allow it: with role:clerk active\n" in denied.out
    assert "not active\n  role:clerk\n" in denied.out
    document = json.loads(
        privtab("explain", "ben", "read", ITEM, "--caller", "no-roles", "--format", "json", *options).out
    )
    assert (document["inactive_roles"], document["activating"]) == (["clerk"], ["clerk"])
    unheld = privtab("explain", "ben", "read", ITEM, "--caller", "role:boss", *options)
    assert "user:ben does not hold the active role(s) `boss`" in unheld.out
    everything = json.loads(privtab("what-can", "ben", "--format", "json", *options).out)
    nothing = json.loads(privtab("what-can", "ben", "--caller", "no-roles", "--format", "json", *options).out)
    assert everything["count"] > nothing["count"] == 0
    assert privtab("what-can", "ben", "--caller", "role:boss", *options).code == 2
    assert privtab("what-can", "ben", ITEM, "--gain", "READ", "--caller", "no-roles", *options).code == 0
    both = privtab("explain", "ben", "read", ITEM, "--caller", "role:clerk", "--caller", "no-roles", *options)
    assert (both.code, "exclude each other" in both.err) == (2, True)
    plain = privtab("explain", "ben", "read", ITEM, "--caller", "role:clerk", "-p", folder / "plain.yaml", *options[2:])
    assert (plain.code, "cannot name active roles" in plain.err) == (2, True)


def test_scenarios_name_active_roles(privtab: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(NARROWED, encoding="utf-8")
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    (tmp_path / "shop.scenarios.yaml").write_text(
        "scenarios: 1\nstate: state.yaml\ncases:\n"
        "  - {name: as clerk, user: ben, action: read, resource: item:s/a/y, active_roles: [clerk], decision: allow}\n"
        "  - {name: as nobody, user: ben, action: read, resource: item:s/a/y, active_roles: [], decision: deny}\n",
        encoding="utf-8",
    )
    ran = privtab("test", tmp_path / "shop.yaml")
    assert ran.code == 0, ran.out + ran.err
    assert "2 cases passed" in ran.out
