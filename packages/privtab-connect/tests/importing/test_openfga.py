"""Tuples of OpenFGA as rows of a state, in the forms that its tools write; what they do not say stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from privtab.base import Entity, FileError, Request
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_connect.importing.imported import imported
from privtab_connect.importing.run import ImportResult

POLICY = """\
privtab: 1
system: drive
version: "1"
entities:
  folder:
    document:
types: {document: {flat: true}}
privileges: [viewer, editor]
semantics: {everyone: public, owner: {creator: true}, inheritance: none%s}
tables:
  folder:
    view: viewer/editor (folder)
  document:
    view: "viewer/editor (folder, document)"
    edit: editor (document) or owner (document)
"""
TUPLES = [
    ("user:anne", "viewer", "folder:plans"),
    ("group:eng#member", "editor", "document:a/b:c"),
    ("user:bob", "member", "group:eng"),
    ("folder:plans", "parent", "document:a/b:c"),
    ("user:carl", "owner", "document:a/b:c"),
    ("role:ops#assignee", "viewer", "folder:secret"),
    ("user:dora", "assignee", "role:ops"),
    ("user:*", "viewer", "folder:open"),
]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return written(tmp_path, POLICY % "")


def written(folder: Path, policy: str) -> Program:
    path = folder / "drive.yaml"
    path.write_text(policy, encoding="utf-8")
    return load_program(path)


def plain(tuples: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [{"user": user, "relation": relation, "object": of} for user, relation, of in tuples]


def read(folder: Path, program: Program, answer: object, **values: str) -> ImportResult:
    source = folder / "tuples.json"
    source.write_text(json.dumps(answer), encoding="utf-8")
    return imported(program, "openfga", str(source), values=values)


def names(result: ImportResult) -> list[str]:
    """The items that stop the import, by name."""
    return sorted({item.name for item in result.refused(strict=False, allow_partial=False, accept=())})


@pytest.mark.parametrize(
    "answer",
    [
        plain(TUPLES),
        {
            "tuples": [{"key": key, "timestamp": "2026-01-01T00:00:00Z"} for key in plain(TUPLES)],
            "continuation_token": "",
        },
        {"name": "drive", "model": "model\n  schema 1.1\n", "tuples": plain(TUPLES), "tests": [{"name": "one"}]},
    ],
    ids=["fga tuple read", "Read API", "store file"],
)
def test_tuples_decide_as_the_store_does(tmp_path: Path, program: Program, answer: object) -> None:
    result = read(tmp_path, program, answer)
    assert names(result) == []
    assert result.not_taken == ()
    state, findings = validate(program, from_tables(result.state.to_tables(), "rows"))
    assert findings == ()
    reference = Reference(program, state)
    asked = {
        ("anne", "view", "folder:plans"): True,
        ("anne", "view", "document:a%2Fb:c"): True,
        ("anne", "edit", "document:a%2Fb:c"): False,
        ("bob", "edit", "document:a%2Fb:c"): True,
        ("bob", "view", "folder:plans"): False,
        ("carl", "edit", "document:a%2Fb:c"): True,
        ("dora", "view", "folder:secret"): True,
        ("zed", "view", "folder:secret"): False,
        ("zed", "view", "folder:open"): True,
    }
    assert {
        (user, action, of): reference.decide(Request(user=user, action=action, resource=Entity.parse(of))).allowed
        for user, action, of in asked
    } == asked


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (("user:eve", "blocked", "folder:plans"), "relation"),
        (("folder:x#viewer", "viewer", "folder:plans"), "userset"),
        (("folder:x", "viewer", "folder:plans"), "userset"),
        (("folder:x", "neighbour", "folder:plans"), "userset"),
        (("group:eng", "viewer", "folder:plans"), "userset"),
        (("group:eng#admin", "viewer", "folder:plans"), "userset"),
        (("user:eve", "viewer", "vault:one"), "type"),
        (("user:*", "member", "group:eng"), "members"),
        (("group:a#member", "member", "group:eng"), "members"),
        (("user:eve", "admin", "group:eng"), "members"),
    ],
)
def test_a_relation_that_cannot_be_said_stops_by_a_name(
    tmp_path: Path, program: Program, row: tuple[str, str, str], name: str
) -> None:
    assert names(read(tmp_path, program, plain([*TUPLES, row]))) == [name]


def test_a_tuple_under_a_condition_is_left_out(tmp_path: Path, program: Program) -> None:
    tuples = plain([TUPLES[0], TUPLES[5]])
    tuples[0]["condition"] = {"name": "in_office"}
    result = read(tmp_path, program, tuples)
    assert names(result) == ["condition"]
    assert [grant["grantee"] for grant in result.state.to_tables()["grants"]] == ["role:ops"]


@pytest.mark.parametrize("further", [{"continuation_token": "more"}, {"tuple_file": "other.yaml"}])
def test_further_tuples_stop(tmp_path: Path, program: Program, further: dict[str, str]) -> None:
    assert names(read(tmp_path, program, {"tuples": plain(TUPLES), **further})) == list(further)


def test_groups_in_groups_and_another_word_for_a_place(tmp_path: Path) -> None:
    program = written(tmp_path, POLICY % ", hierarchy: [groups]")
    rows = [("group:a#member", "member", "group:eng"), ("folder:plans", "folder", "document:x"), *TUPLES[:1]]
    result = read(tmp_path, program, plain(rows), parent="folder")
    assert names(result) == []
    tables = result.state.to_tables()
    assert tables["memberships"] == [{"user": "group:a", "group": "eng"}]
    assert tables["entities"] == [{"entity": "document:x", "parent": "folder:plans"}]


def test_a_tuple_without_an_object_is_an_error(tmp_path: Path, program: Program) -> None:
    with pytest.raises(FileError, match="does not fit an answer"):
        read(tmp_path, program, [{"user": "user:anne", "relation": "viewer"}])
