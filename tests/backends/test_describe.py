"""The description of a policy keeps the contract that other programs rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from privtab import pipeline
from privtab.backends import describe

POLICIES = (
    "cdap/initial",
    "cdap/draft",
    "cdap/revised",
    "cdap/final",
    "gravitino/1.1.0",
    "gravitino/1.2.0",
    "gravitino/1.3.0",
    "streams/teracloud",
)
OPERATION = {
    "entity", "operation", "title", "from", "requires", "minimal_sets", "each", "each_minimal_sets", "report", "effects",
    "note", "source", "ambiguous",
}  # fmt: skip


def described(name: str) -> dict[str, Any]:
    program = pipeline.load_program(name)
    found: dict[str, Any] = json.loads(json.dumps(describe.described_policy(program, revision="r1")))
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_every_operation_has_every_key(name: str) -> None:
    found = described(name)
    assert {"system", "version", "revision", "entities", "privileges", "sets", "roles", "operations"} <= set(found)
    for operation in found["operations"]:
        assert set(operation) >= OPERATION
        assert operation["from"] in {"row", "core"}
        assert operation["source"]["document"].endswith((".txt", ".md"))
        assert isinstance(operation["source"]["line"], int)
    pairs = [(o["entity"], o["operation"]) for o in found["operations"]]
    assert len(pairs) == len(set(pairs))


def test_the_example_of_the_contract() -> None:
    create = next(
        o for o in described("cdap/final")["operations"] if (o["entity"], o["operation"]) == ("namespace", "create")
    )
    assert create["title"] == "create"
    assert create["from"] == "row"
    assert create["requires"] == "WRITE (instance)"
    assert create["minimal_sets"] == [["WRITE (instance)"]]
    assert create["each"] is create["each_minimal_sets"] is create["report"] is create["note"] is None
    assert create["effects"] == ["grant ALL (namespace)"]
    assert create["source"]["line"] == 15
    assert described("cdap/final")["entities"]["namespace"]["parent"] == "instance"


def test_flags_add_the_sets_for_when_they_are_set() -> None:
    submit = next(
        o for o in described("streams/teracloud")["operations"] if o["operation"] == "submit" and o.get("when")
    )
    assert submit["minimal_sets"] == [["add (job_group)"]]
    assert submit["when"] == {"override": [["add (job_group)", "add (jobs_override)"]]}


def test_declarations_are_described_where_they_are() -> None:
    found = {(o["entity"], o["operation"]): o for o in described("gravitino/1.1.0")["operations"]}
    declared = {
        pair: {"destructive", "sensitive"} & set(found[pair]) for pair in (("role", "delete"), ("role", "grant"))
    }
    assert declared == {("role", "delete"): {"destructive", "sensitive"}, ("role", "grant"): {"sensitive"}}
    assert not {"destructive", "sensitive"} & set(found["role", "get"])
