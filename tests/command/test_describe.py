from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def described(privtab: Callable[..., Any], *arguments: str | Path) -> dict[str, Any]:
    ran = privtab("describe", *arguments, "--format", "json")
    assert ran.code == 0, ran.err
    value = json.loads(ran.out)
    assert isinstance(value, dict)
    return value


def row(policy: dict[str, Any], entity: str, operation: str) -> dict[str, Any]:
    (found,) = [entry for entry in policy["operations"] if (entry["entity"], entry["operation"]) == (entity, operation)]
    assert isinstance(found, dict)
    return found


def test_the_shape_that_other_programs_rely_on(privtab: Callable[..., Any]) -> None:
    policy = described(privtab, "cdap/final")
    assert (policy["system"], policy["version"]) == ("cdap", "final")
    assert policy["entities"]["namespace"]["parent"] == "instance"
    assert policy["entities"]["instance"]["parent"] is None
    assert "namespace" in policy["privileges"]["READ"]["on"]
    assert policy["sets"]["ALL"] == ["READ", "WRITE", "EXECUTE", "ADMIN"]
    assert policy["roles"] == {}
    create = row(policy, "namespace", "create")
    expected = {
        "entity": "namespace",
        "operation": "create",
        "from": "row",
        "requires": "WRITE (instance)",
        "minimal_sets": [["WRITE (instance)"]],
        "each": None,
        "each_minimal_sets": None,
        "report": None,
        "effects": ["grant ALL (namespace)"],
        "note": None,
        "ambiguous": None,
    }
    assert {key: create[key] for key in expected} == expected
    assert create["source"]["document"] == "000_4b47ecc01deb1f53.txt"
    assert isinstance(create["source"]["line"], int)


def test_a_listing_has_minimal_sets_for_each_item(privtab: Callable[..., Any], policy: Path) -> None:
    listing = row(described(privtab, policy), "shelf", "list")
    assert (listing["requires"], listing["minimal_sets"]) == (None, [[]])
    assert (listing["each"], listing["each_minimal_sets"]) == ("READ (shelf)", [["READ (shelf)"]])


def test_core_rows_say_so(privtab: Callable[..., Any], policy: Path) -> None:
    value = described(privtab, policy)
    origins = {(entry["entity"], entry["operation"]): entry["from"] for entry in value["operations"]}
    assert {entity for (entity, operation), origin in origins.items() if origin == "core"} == set(value["entities"])
    assert origins["store", "open"] == "row"
    assert row(value, "item", "delete")["minimal_sets"] == [["WRITE (item)"]]


def test_flags_have_sets_of_their_own(privtab: Callable[..., Any], policy: Path) -> None:
    burn = row(described(privtab, policy), "item", "burn")
    assert burn["minimal_sets"] == [["WRITE (item)"]]
    assert burn["when"] == {"really": [["OWN (item)", "WRITE (item)"]]}


def test_objects_are_listed_with_a_case_for_each_type(privtab: Callable[..., Any], policy: Path) -> None:
    value = described(privtab, policy)
    move = row(value, "item", "move")
    assert move["with"] == {"to": ["shelf"]}
    assert move["minimal_sets"] == [["WRITE (item)", "WRITE (to)"]]
    assert "cases" not in move
    put = row(value, "tag", "put")
    assert put["with"] == {"on": ["shelf", "item"]}
    sets = {case["with"]["on"]: case["minimal_sets"] for case in put.get("cases", [])}
    assert sets in ({}, {kind: [["READ (tag)", "WRITE (on)"]] for kind in ("shelf", "item")})


def test_the_revision_is_that_of_the_bundle(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    ran = privtab("compile", policy, "-o", tmp_path / "build", "--format", "json")
    assert described(privtab, policy)["revision"] == json.loads(ran.out)[0]["revision"]


def test_another_reading_changes_the_row(privtab: Callable[..., Any]) -> None:
    plain = row(described(privtab, "cdap/final"), "namespace", "list")
    other = row(described(privtab, "cdap/final@namespace/list=parent"), "namespace", "list")
    assert plain["ambiguous"]["readings"].keys() == {"parent"}
    assert plain["each_minimal_sets"] != other["each_minimal_sets"]


def test_a_variant_changes_rows(privtab: Callable[..., Any]) -> None:
    plain = row(described(privtab, "cdap/initial"), "program", "start")
    other = row(described(privtab, "cdap/initial@use_cases"), "program", "start")
    assert other["minimal_sets"] == [["READ (namespace)", "READ (application)", "EXECUTE (program)"]]
    assert plain["minimal_sets"] != other["minimal_sets"]


def test_for_people_every_operation_and_note_is_there(privtab: Callable[..., Any], policy: Path) -> None:
    value = described(privtab, policy)
    text = privtab("describe", policy).out
    for entry in value["operations"]:
        assert entry["operation"] in text
    assert "create: Shelves are cheap." in text
    assert "grant ALL (shelf)" in text
    assert "or owner (shelf)" in text
    assert f"revision {value['revision']}" in text


@pytest.mark.slow
def test_all_shipped_policies_are_described(privtab: Callable[..., Any]) -> None:
    for name in (
        "cdap/initial",
        "cdap/draft",
        "cdap/revised",
        "cdap/final",
        "gravitino/1.1.0",
        "gravitino/1.2.0",
        "gravitino/1.3.0",
        "streams/teracloud",
    ):
        value = described(privtab, name)
        assert f"{value['system']}/{value['version']}" == name
        assert privtab("describe", name).code == 0


def test_the_revision_of_a_large_policy_is_computed_in_a_child_process_and_only_for_programs(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    alone = described(privtab, policy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    for module in ("bundle.pack", "command.describe"):
        monkeypatch.setattr(f"privtab.{module}.LARGE", 1)
    monkeypatch.setattr("privtab.base.worker.Worker.spare", lambda: 1)
    text = privtab("describe", policy).out
    assert "revision not computed yet" in text
    assert not (tmp_path / "two" / "privtab").exists()
    assert described(privtab, policy) == alone
    assert f"revision {alone['revision']}" in privtab("describe", policy).out
    assert (tmp_path / "two" / "privtab" / "revisions.json").exists()
