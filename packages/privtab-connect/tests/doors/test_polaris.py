"""Apache Polaris' own OPA requests through its door, against the answers of the policy about what they mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from signed_door import DoorServer, door_server

from privtab import Embedded

STATE = ROOT / "policy_src" / "polaris" / "state.yaml"
SAMPLES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("polaris_requests.json").read_text(encoding="utf-8")
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    with door_server(tmp_path_factory.mktemp("polaris"), "polaris/1.7", "polaris", STATE) as server:
        yield server


@pytest.fixture(scope="module")
def embedded(door: DoorServer) -> Embedded:
    return door.embedded()


def entity(type_: str, *path: str, root: bool = False) -> dict[str, Any]:
    """An entity of Polaris: its names from the catalog down."""
    *around, name = path
    kinds = ["ROOT", "CATALOG", *["NAMESPACE"] * len(around)][0 if root else 1 : len(around) + 1]
    names = ["root_container", *around] if root else around
    parents = [{"type": kind, "name": n, "parents": []} for kind, n in zip(kinds, names, strict=True)]
    return {"type": type_, "name": name, "parents": parents}


def request(
    user: str, roles: list[str], action: str, targets: list[Any] | None = None, secondaries: list[Any] | None = None
) -> dict[str, Any]:
    resource = {"targets": targets, "secondaries": secondaries}
    return {
        "actor": {"principal": user, "roles": roles},
        "action": action,
        "resource": {key: value for key, value in resource.items() if value},
        "context": {"request_id": "1", "realm": "r"},
    }


ROOT_TARGET = {"type": "ROOT", "name": "root_container", "parents": []}
ORDERS = entity("TABLE_LIKE", "silver", "sales", "eu", "orders")
CASES = [
    # user, active roles, action, targets, secondaries | the policy's: operation, resource, with
    ("carol", ["analyst"], "LOAD_TABLE_WITH_READ_DELEGATION", [ORDERS], [], "table:silver/sales/eu/orders", {}),
    ("carol", ["engineer"], "LOAD_TABLE_WITH_WRITE_DELEGATION", [ORDERS], [], "table:silver/sales/eu/orders", {}),
    ("carol", ["analyst"], "LOAD_TABLE_WITH_WRITE_DELEGATION", [ORDERS], [], "table:silver/sales/eu/orders", {}),
    ("carol", [], "LOAD_TABLE_WITH_READ_DELEGATION", [ORDERS], [], "table:silver/sales/eu/orders", {}),
    ("root", ["service_admin"], "GET_CATALOG", [entity("CATALOG", "bronze", root=True)], [], "catalog:bronze", {}),
    ("root", ["service_admin"], "LIST_CATALOGS", [ROOT_TARGET], [], "catalog:", {}),

    ("alice", ["engineer"], "LIST_CATALOGS", [ROOT_TARGET], [], "catalog:", {}),
    ("root", ["service_admin"], "CREATE_PRINCIPAL", [ROOT_TARGET], [], "principal:", {}),
    ("root", ["service_admin"], "CREATE_CATALOG", [ROOT_TARGET], [], "catalog:", {}),
    ("alice", ["engineer"], "CREATE_PRINCIPAL_ROLE", [ROOT_TARGET], [], "principal_role:", {}),
    ("root", ["service_admin"], "RESET_CREDENTIALS", [entity("PRINCIPAL", "eve")], [], "principal:eve", {}),
    ("bob", ["analyst"], "LIST_NAMESPACES", [entity("CATALOG", "silver")], [], "namespace:silver/", {}),
    ("bob", ["analyst"], "LIST_NAMESPACES", [entity("NAMESPACE", "silver", "sales")], [], "namespace:silver/sales/", {}),
    ("bob", ["analyst"], "LIST_NAMESPACES", [entity("NAMESPACE", "bronze", "raw")], [], "namespace:bronze/raw/", {}),
    (
        "alice", ["engineer"], "CREATE_TABLE_DIRECT", [entity("NAMESPACE", "silver", "sales", "eu", root=True)], [],
        "table:silver/sales/eu/", {},
    ),
    (
        "alice", ["engineer"], "CREATE_TABLE_DIRECT", [entity("NAMESPACE", "silver", "sales", "us")], [],
        "table:silver/sales/us/", {},
    ),
    (
        "alice", ["engineer"], "RENAME_TABLE", [entity("TABLE_LIKE", "silver", "sales", "us", "t")],
        [entity("TABLE_LIKE", "silver", "sales", "eu", "t2")], "table:silver/sales/us/t", {"to": "namespace:silver/sales/eu"},
    ),
    (
        "alice", ["engineer"], "RENAME_TABLE", [entity("TABLE_LIKE", "silver", "sales", "us", "t")],
        [entity("NAMESPACE", "silver", "sales", "eu")], "table:silver/sales/us/t", {"to": "namespace:silver/sales/eu"},
    ),
    (
        "alice", ["engineer"], "RENAME_TABLE", [entity("TABLE_LIKE", "silver", "sales", "us", "t")],
        [entity("TABLE_LIKE", "silver", "hr", "t2")], "table:silver/sales/us/t", {"to": "namespace:silver/hr"},
    ),
    (
        "dan", ["catalog_keeper"], "REVOKE_CATALOG_GRANT_FROM_CATALOG_ROLE", [entity("CATALOG", "silver")],
        [entity("CATALOG_ROLE", "silver", "reader")], "catalog:silver", {"to": "catalog_role:silver/reader"},
    ),
    (
        "dan", ["catalog_keeper"], "REVOKE_CATALOG_GRANT_FROM_CATALOG_ROLE", [entity("CATALOG", "silver")],
        [entity("CATALOG_ROLE", "bronze", "reader")], "catalog:silver", {"to": "catalog_role:bronze/reader"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("user", "roles", "action", "targets", "secondaries", "resource", "objects"),
    CASES,
    ids=[f"{n}: {case[0]} {case[2]}" for n, case in enumerate(CASES)],
)
def test_a_request_means_what_it_says(
    door: DoorServer,
    embedded: Embedded,
    user: str,
    roles: list[str],
    action: str,
    targets: list[Any],
    secondaries: list[Any],
    resource: str,
    objects: Mapping[str, str],
) -> None:
    answer = door.ask("decision", request(user, roles, action, targets, secondaries))
    expected = embedded.check(user, action.lower(), resource, with_=dict(objects), active_roles=roles)
    assert answer == {"allow": expected, "refused": None}


def test_the_cases_tell_something(embedded: Embedded) -> None:
    answers = [
        embedded.check(user, action.lower(), resource, with_=dict(objects), active_roles=roles)
        for user, roles, action, _, _, resource, objects in CASES
    ]
    assert answers.count(True) >= 10
    assert answers.count(False) >= 6


def test_several_targets_must_all_pass(door: DoorServer) -> None:
    def commit(*names: str) -> bool:
        targets = [entity("TABLE_LIKE", *name.split(".")) for name in names]
        return bool(door.ask("decision", request("alice", ["engineer"], "LOAD_TABLE", targets))["allow"])

    assert commit("silver.sales.a", "silver.sales.eu.b")
    assert not commit("silver.sales.a", "silver.hr.b")
    assert not commit("silver.hr.b")


def test_a_role_that_nobody_knows_is_denied_and_said(door: DoorServer) -> None:
    for roles in (["engineer", "wizard"], ["analyst"], ["*"], [""]):
        answer = door.ask("decision", request("alice", roles, "LOAD_TABLE", [ORDERS]))
        assert answer["allow"] is False
        assert answer["refused"]["reason"] == ("invalid_request" if "" in roles else "role_not_held"), answer
    said = door.ask("decision", request("alice", ["engineer", "wizard"], "LOAD_TABLE", [ORDERS]))["refused"]["message"]
    assert "wizard" in said


def test_what_was_decided_is_read_back_from_the_log(tmp_path: Path) -> None:
    """The cases, and each of them with something else in the place of one part."""
    wrong: tuple[Any, ...] = (
        None,
        5,
        "",
        "silver",
        [],
        [5],
        ["*"],
        {},
        [None],
        {"name": "a"},
        [ORDERS, ORDERS],
        [ROOT_TARGET],
    )
    with door_server(tmp_path, "polaris/1.7", "polaris", STATE) as door:
        allowed = 0
        for user, roles, action, targets, secondaries, _, _ in CASES:
            asked = request(user, roles, action, targets, secondaries)
            broken = [asked] + [
                {**asked, part: {**asked[part], key: value}}
                for part, key in (
                    ("actor", "principal"),
                    ("actor", "roles"),
                    ("resource", "targets"),
                    ("resource", "secondaries"),
                )
                for value in wrong
            ]
            broken += [{key: value for key, value in asked.items() if key != part} for part in asked]
            allowed += sum(door.ask("decision", one)["allow"] for one in broken)
        found = door.replayed("polaris/1.7", STATE)
        differing = found.questions.select(["kind", "recorded", "user", "action", "resource", "more"]).to_pylist()
        assert (found.count("unexplained"), differing) == (0, [])
        assert found.allowed >= allowed > 100
        assert found.replayed > 500


MODELS = {
    "root:": "SEMANTIC_MODEL_MANAGE_GRANTS_ON_SECURABLE",
    "namespace:silver/sales": "SEMANTIC_MODEL_CREATE",
    "semantic_model:silver/sales/eu/orders": "SEMANTIC_MODEL_WRITE",
}
"""What modelers hold by 1.8: (entity, privilege)."""


def test_models_are_asked_about_since_1_8(tmp_path: Path) -> None:
    """The operations that 1.8 brings, with the names of its types; a door of 1.7 denies them."""
    rows = {
        "assignments": [{"principal": "user:mo", "role": "modeler"}],
        "grants": [
            {"grantee": "role:modeler", "effect": "allow", "privilege": privilege, "entity": on}
            for on, privilege in MODELS.items()
        ],
    }
    (tmp_path / "state.json").write_text(json.dumps(rows), encoding="utf-8")
    orders = ("silver", "sales", "eu", "orders")
    namespaces = [entity("NAMESPACE", "silver", name, root=True) for name in ("sales", "hr")]
    models = [entity("SEMANTIC_MODEL", *orders), entity("SEMANTIC_MODEL", "silver", "hr", "staff", root=True)]
    role = entity("CATALOG_ROLE", "silver", "reader")
    asked = [
        *(("create", target, "semantic_model:silver/{}/", {}) for target in namespaces),
        *(("list", target, "semantic_model:silver/{}/", {}) for target in namespaces),
        *((act, target, "semantic_model:{}", {}) for act in ("load", "update", "drop") for target in models),
        *(("add", target, "semantic_model:{}", {}) for target in models),
        *(("revoke", target, "semantic_model:{}", {"to": "catalog_role:silver/reader"}) for target in models),
    ]
    suffix = {"add": "_GRANT_TO_CATALOG_ROLE", "revoke": "_GRANT_FROM_CATALOG_ROLE"}
    found = []
    with door_server(tmp_path, "polaris/1.8", "polaris", tmp_path / "state.json") as door:
        embedded = door.embedded()
        for act, target, form, objects in asked:
            action = f"{act.upper()}_SEMANTIC_MODEL{suffix.get(act, '')}"
            around = [parent["name"] for parent in target["parents"] if parent["type"] != "ROOT"]
            name = "/".join([*around, target["name"]] if target["type"] == "SEMANTIC_MODEL" else [target["name"]])
            answer = door.ask("decision", request("mo", ["modeler"], action, [target], [role] if objects else []))
            expected = embedded.check("mo", action.lower(), form.format(name), with_=objects, active_roles=["modeler"])
            assert answer == {"allow": expected, "refused": None}, (action, target)
            found.append(expected)
    assert (found.count(True), found.count(False)) == (6, 8)


@pytest.mark.parametrize("action", ["CREATE_SEMANTIC_MODEL", "LOAD_SEMANTIC_MODEL"])
def test_models_are_unknown_before(door: DoorServer, action: str) -> None:
    answer = door.ask("decision", request("root", ["service_admin"], action, [entity("NAMESPACE", "silver", "sales")]))
    assert answer == {"allow": False, "refused": {"reason": "unknown_operation", "operation": action}}


def meaning(asked: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The policy's resource and objects of a sample, read once more and independently; None if it names none."""
    paths = {
        slot: ["/".join([*(p["name"] for p in e["parents"] if p["type"] != "ROOT"), e["name"]]) for e in entities]
        for slot, entities in asked["resource"].items()
    }
    match asked["action"], paths:
        case "CREATE_CATALOG" | "LIST_CATALOGS", {"targets": [_]}:
            return "catalog:", {}
        case "GET_CATALOG", {"targets": [path]}:
            return f"catalog:{path}", {}
        case "RENAME_TABLE", {"targets": [path], "secondaries": [to]}:
            return f"table:{path}", {"to": f"namespace:{to.rpartition('/')[0]}"}
        case "LOAD_TABLE" | "REMOVE_TABLE_PROPERTIES" | "SET_TABLE_SNAPSHOT_REF", {"targets": [path]}:
            return f"table:{path}", {}
        case _, {}:
            return None
        case unknown:
            raise AssertionError(unknown)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorServer]:
    """A state in which the principals of the samples hold the roles that they name, and one of these everything in some catalogs."""
    folder = tmp_path_factory.mktemp("sampled")
    actors = {json.dumps(r["input"]["actor"], sort_keys=True) for s in SAMPLES for r in s["requests"]}
    held = sorted({(f"user:{a['principal']}", role) for a in map(json.loads, actors) for role in a["roles"]})
    catalogs = ("prod_catalog", "catalog-1", "catalog1")
    rows = {
        "assignments": [{"principal": user, "role": role} for user, role in held],
        "grants": [
            {
                "grantee": f"role:{role}",
                "effect": "allow",
                "privilege": "CATALOG_MANAGE_CONTENT",
                "entity": f"catalog:{name}",
            }
            for role in ("analyst", "role-1")
            for name in catalogs
        ],
    }
    (folder / "state.json").write_text(json.dumps(rows), encoding="utf-8")
    with door_server(folder, "polaris/1.7", "polaris", folder / "state.json") as server:
        yield server


def test_the_requests_of_its_tests(sampled: DoorServer) -> None:
    embedded, found = sampled.embedded(), []
    for asked in [request["input"] for sample in SAMPLES for request in sample["requests"]]:
        answer = sampled.ask("decision", asked)
        if (meant := meaning(asked)) is None:
            assert answer == {"allow": False, "refused": {"reason": "unknown_resource", "operation": asked["action"]}}
            continue
        resource, objects = meant
        actor = asked["actor"]
        expected = embedded.check(
            actor["principal"], asked["action"].lower(), resource, with_=objects, active_roles=actor["roles"]
        )
        assert answer == {"allow": expected, "refused": None}, asked
        found.append(expected)
    assert found.count(True) >= 5
    assert found.count(False) >= 3
