"""Whoever may do everything is refused what does not say what it is about, or says more or something else than is looked at."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from seeds import seeds
from signed_door import DoorServer, door_server

from privtab.pipeline import find_policy, load_program
from privtab_connect.doors.document import Door, load

ROOT_TARGET = {"type": "ROOT", "name": "root_container", "parents": []}
POLARIS_PATHS = {
    "ROOT": (),
    "PRINCIPAL": ("p",),
    "PRINCIPAL_ROLE": ("r",),
    "CATALOG": ("c",),
    "CATALOG_ROLE": ("c", "cr"),
    "NAMESPACE": ("c", "n"),
    "TABLE_LIKE": ("c", "n", "t"),
    "POLICY": ("c", "n", "pol"),
}
TRINO_OBJECTS: dict[str, dict[str, Any]] = {
    "user": {"user": "u"},
    "systemSessionProperty": {"name": "p"},
    "catalogSessionProperty": {"catalogName": "c", "propertyName": "p"},
    "catalog": {"name": "c"},
    "schema": {"catalogName": "c", "schemaName": "s"},
    "table": {"catalogName": "c", "schemaName": "s", "tableName": "t", "columns": ["x", "y"]},
    "function": {"catalogName": "c", "schemaName": "s", "functionName": "f"},
}
WRONG: tuple[Any, ...] = (
    None,
    {},
    [],
    "",
    "x",
    5,
    True,
    [None],
    [5],
    ["x"],
    [[]],
    [{}],
    {"name": "x"},
    [{"name": "x"}],
    {"type": "ROOT"},
)


def polaris_entity(type_: str) -> dict[str, Any]:
    if type_ == "ROOT":
        return ROOT_TARGET
    *around, name = POLARIS_PATHS[type_]
    kinds = ["CATALOG", *["NAMESPACE"] * len(around)]
    parents = [{"type": kind, "name": one, "parents": []} for kind, one in zip(kinds, around, strict=False)]
    return {"type": type_, "name": name, "parents": parents}


def type_of(door: Door, kind: str) -> str:
    """The type of Polaris that an object of a kind has."""
    ((_, (found, *_)),) = door.kinds[kind].conditions
    return str(found)


@pytest.fixture(scope="module")
def polaris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorServer, list[Any]]]:
    """The door, and a request for each of its operations, by somebody who holds everything."""
    folder = tmp_path_factory.mktemp("polaris")
    program = load_program(find_policy("polaris/1.7"))
    grants = [
        {"grantee": "role:all", "effect": "allow", "privilege": name, "entity": f"{type_}:{path}"}
        for name, privilege in program.privileges.items()
        for type_, path in (("root", ""), ("catalog", "c"))
        if type_ in privilege.on and name in program.grantable
    ]
    rows = {"assignments": [{"principal": "user:root", "role": "all"}], "grants": grants}
    (folder / "state.json").write_text(json.dumps(rows), encoding="utf-8")
    door = load("polaris", program)
    asked = []
    for name, alternatives in door.operations.items():
        one = alternatives[-1]
        resource = {"targets": [polaris_entity(type_of(door, one.kind))]}
        if one.objects:
            ((kinds, _),) = one.objects.values()
            resource["secondaries"] = [polaris_entity(type_of(door, kinds[0]))]
        context = {"request_id": "1", "realm": "r"}
        actor = {"principal": "root", "roles": ["all"]}
        asked.append({"actor": actor, "action": name, "resource": resource, "context": context})
    with door_server(folder, "polaris/1.7", "polaris", folder / "state.json") as server:
        yield server, asked


def trino_request(door: Door, operation: str) -> dict[str, Any] | None:
    """A request for an operation, by the owner of the server; None for a question for filters."""
    one = door.operations[operation][-1]
    if one.filters:
        return None
    kind = door.kinds[one.kind]
    heads = {place.at[0] for place in kind.path if place is not None}
    action: dict[str, Any] = {"operation": operation}
    if heads:
        action["resource"] = {head: TRINO_OBJECTS[head] for head in sorted(heads)}
    if one.objects:
        action["targetResource"] = {"schema": TRINO_OBJECTS["schema"], "table": TRINO_OBJECTS["table"]}
    return {"context": {"identity": {"user": "olga", "groups": []}}, "action": action}


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorServer, list[Any]]]:
    folder = tmp_path_factory.mktemp("trino")
    program = load_program(find_policy("trino/476"))
    (folder / "state.json").write_text(
        json.dumps({"owners": [{"entity": "server:", "owner": "user:olga"}]}), encoding="utf-8"
    )
    door = load("trino", program)
    asked = [found for name in door.operations if (found := trino_request(door, name)) is not None]
    with door_server(folder, "trino/476", "trino", folder / "state.json") as server:
        yield server, asked


def allowed(server: DoorServer, asked: Any) -> bool:
    answer = server.ask("decision" if server.door == "polaris" else "allow", asked)
    found = answer["allow"] if isinstance(answer, dict) else answer
    assert isinstance(found, bool)
    return found


SOME = pytest.mark.parametrize(
    "every", [pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
"""Of the operations, each fourth or all."""


@pytest.mark.slow
def test_what_says_what_it_is_about_is_allowed(
    polaris: tuple[DoorServer, list[Any]], trino: tuple[DoorServer, list[Any]]
) -> None:
    server, asked = polaris
    denied = {one["action"] for one in asked if not allowed(server, one)}
    assert denied <= {"RESET_CREDENTIALS"}, denied
    server, asked = trino
    assert not [one["action"]["operation"] for one in asked if not allowed(server, one)]


@SOME
def test_operations_of_polaris_without_targets_are_refused(polaris: tuple[DoorServer, list[Any]], every: int) -> None:
    server, asked = polaris
    for one in asked[::every]:
        secondaries = {key: value for key, value in one["resource"].items() if key == "secondaries"}
        for resource in (None, {}, secondaries, *({**secondaries, "targets": wrong} for wrong in WRONG)):
            broken = {**one, "resource": resource}
            answer = server.ask("decision", broken)
            assert answer["allow"] is False, broken
            assert answer["refused"] == {"reason": "unknown_resource", "operation": one["action"]}, broken
        without = {key: value for key, value in one.items() if key != "resource"}
        assert not allowed(server, without)
        for type_ in POLARIS_PATHS:
            target = polaris_entity(type_)
            both = {**one, "resource": {**one["resource"], "targets": [*one["resource"]["targets"], target]}}
            other = {**one, "resource": {**one["resource"], "targets": [target]}}
            assert allowed(server, both) <= allowed(server, other), both
            if "secondaries" in one["resource"]:
                two = {**one["resource"], "secondaries": [*secondaries["secondaries"], target]}
                assert not allowed(server, {**one, "resource": two}), two
        assert not allowed(
            server, {**one, "resource": {"targets": [polaris_entity("PRINCIPAL"), polaris_entity("POLICY")]}}
        )


@SOME
def test_operations_of_trino_without_what_they_are_about_are_refused(
    trino: tuple[DoorServer, list[Any]], every: int
) -> None:
    server, asked = trino
    door = load("trino", load_program(find_policy("trino/476")))
    looked_at = {
        name: {place.at for place in door.kinds[alternatives[-1].kind].path if place is not None}
        for name, alternatives in door.operations.items()
    }
    for one in asked[::every]:
        action = one["action"]
        about = action.get("resource", {})
        broken = [{key: value for key, value in action.items() if key != "resource"}] if about else []
        broken += [{**action, "resource": wrong} for wrong in WRONG if wrong is not None or about]
        named = [TRINO_OBJECTS[head].keys() for head in about]
        broken += [
            {**action, "resource": {**about, head: wrong}}
            for head, keys in zip(about, named, strict=True)
            for wrong in WRONG
            if not (isinstance(wrong, dict) and wrong.keys() == keys)
        ]
        broken += [
            {**action, "resource": {**about, head: {**about[head], key: wrong}}}
            for head in about
            for key in about[head]
            for wrong in WRONG
            if (head, key) in looked_at[action["operation"]] and wrong != "x"
        ]
        if "targetResource" in action:
            broken += [{key: value for key, value in action.items() if key != "targetResource"}]
            broken += [{**action, "targetResource": wrong} for wrong in WRONG]
        for spoilt in broken:
            assert not allowed(server, {**one, "action": spoilt}), spoilt


def changed(value: Any, rnd: random.Random) -> Any:
    """The same with a part at any depth missing, doubled, or of another type."""
    if not isinstance(value, dict | list) or not value or rnd.random() < 0.1:
        return rnd.choice(WRONG)
    found: Any = dict(value) if isinstance(value, dict) else list(value)
    key = rnd.choice(list(value)) if isinstance(value, dict) else rnd.randrange(len(value))
    if rnd.random() < 0.2:
        del found[key]
    else:
        found[key] = changed(value[key], rnd)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(20), quick=2, full=2))
def test_a_spoilt_request_is_refused(polaris: tuple[DoorServer, list[Any]], seed: int) -> None:
    """A part of what the operation is about is lost: nobody may do it, whatever they hold."""
    server, asked = polaris
    rnd, seen = random.Random(seed), Counter[bool]()
    for _ in range(500):
        one = rnd.choice(asked)
        spoilt = {**one, "resource": {**one["resource"], "targets": changed(one["resource"]["targets"], rnd)}}
        targets = spoilt["resource"]["targets"]
        sound = isinstance(targets, list) and targets and all(map(_sound, targets, one["resource"]["targets"]))
        found = allowed(server, spoilt)
        seen[found] += 1
        assert not found or sound, spoilt
    assert seen[False] > 200


def _sound(target: Any, before: dict[str, Any]) -> bool:
    """Whether a target still has its type, and names that are texts; its root, and what a root or a top-level entity lies in, is not looked at."""
    if not isinstance(target, dict) or target.get("type") != before["type"]:
        return False
    if before["type"] == "ROOT":
        return True
    if not isinstance(target.get("name"), str) or not target["name"]:
        return False
    parents = target.get("parents")
    if not before["parents"]:
        return True
    return isinstance(parents, list) and all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in parents
    )
