"""The table `entities`: which rows place an entity, and what is reported of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privtab import pipeline
from privtab.ir.nodes import Program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

POLICY = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document: {comment:}}}}
types: {folder: {nested: 3, flat: true}, document: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
tables: {document: {read: READ (document)}, comment: {read: READ (comment)}}
"""
PLACES = [("folder:f1", "drive:main"), ("folder:f2", "folder:f1"), ("document:d1", "folder:f2")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("policy") / "drives.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return pipeline.load_program(path)


def read(program: Program, *rows: tuple[str, str], **tables: Any) -> tuple[State, list[StateFinding]]:
    entities = [{"entity": entity, "parent": parent} for entity, parent in rows]
    state, found = validate(program, from_tables({"entities": entities, **tables}, "state"))
    return state, list(found)


def grant(entity: str) -> dict[str, str]:
    return {"grantee": "user:ann", "effect": "deny", "privilege": "READ", "entity": entity}


def test_places_are_in_the_index_and_containers_with_their_paths(program: Program) -> None:
    state, found = read(program, *PLACES, grants=[grant("comment:d1/c1")])
    assert found == []
    document = index_document(program, state)
    assert document["places"] == dict(PLACES)
    assert document["containers"] == {
        "drive:main": ["drive:main"],
        "folder:f1": ["drive:main", "folder:f1"],
        "folder:f2": ["drive:main", "folder:f1", "folder:f2"],
    }
    assert state.to_tables()["entities"] == [{"entity": e, "parent": p} for e, p in PLACES]


@pytest.mark.parametrize(
    ("rows", "codes", "message"),
    [
        ([("folder:f2", "folder:f9")], ["S180"], "`folder:f2` lies in `folder:f9`, which has no row"),
        ([("document:d1", "folder:x"), ("folder:x", "folder:y")], ["S180", "S180"], "and `folder:y` has no row"),
        ([("document:d1", "drive:main")], ["S181"], "`document:d1` cannot lie in `drive:main`"),
        ([("drive:main", "drive:main")], ["S181"], "ids of `drive` are not flat"),
        ([("folder:f1", "drive:a"), ("folder:f1", "drive:b")], ["S182", "S182"], "lies in `drive:a` and in `drive:b`"),
        ([("folder:a", "folder:a")], ["S183"], "`folder:a` contains itself: `folder:a` in `folder:a`"),
        (
            [("folder:a", "folder:b"), ("folder:b", "folder:a"), ("document:d", "folder:a")],
            ["S183", "S183", "S180"],
            "`folder:a` contains itself: `folder:a` in `folder:b` in `folder:a`",
        ),
        (
            [("folder:a", "drive:m"), ("folder:b", "folder:a"), ("folder:c", "folder:b"), ("folder:d", "folder:c")],
            ["S184"],
            "`folder:d` lies below 3 levels of `folder`",
        ),
        ([("document:a/b", "folder:f")], ["S112"], "wrong depth"),
        ([("document:*", "folder:f")], ["S115"], "there are no wildcards"),
    ],
)
def test_wrong_rows_are_findings(program: Program, rows: list[tuple[str, str]], codes: list[str], message: str) -> None:
    state, found = read(program, *rows)
    assert [finding.code for finding in found] == codes
    assert any(message in finding.message for finding in found), found
    valid = {str(row.entity) for row in state.entities}
    assert valid.isdisjoint(f.row["entity"] for f in found)
    assert not any(finding.stops(program) for finding in found), "what is placed nowhere is denied anyway"


def test_two_rows_that_say_the_same_count_once(program: Program) -> None:
    state, found = read(program, PLACES[0], PLACES[0])
    assert [f.code for f in found] == ["S160"]
    assert len(state.entities) == 1


@pytest.mark.parametrize("large", [False, True])
def test_rows_about_what_lies_nowhere(program: Program, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "LARGE", 1 if large else 1_000)
    state, found = read(program, *PLACES, grants=[grant("document:d1"), grant("document:d2"), grant("comment:d3/c")])
    assert [(f.code, f.message) for f in found] == [
        ("S180", "no row of `entities` tells where `document:d2` lies"),
        ("S180", "no row of `entities` tells where `document:d3` lies"),
    ]
    assert found[0].help == "did you mean `document:d1`?"
    assert all(finding.stops(program) for finding in found), "the rows deny"
    assert [str(row.entity) for row in state.grants] == ["document:d1"]


def test_a_policy_without_flat_ids_has_no_use_for_the_table(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(POLICY.replace("flat: true", "flat: false"), encoding="utf-8")
    plain = pipeline.load_program(path)
    state, found = read(plain, ("folder:main/f", "drive:main"))
    assert [(f.code, f.severity) for f in found] == [("S185", "warning")]
    assert state.entities == ()
    assert "places" not in index_document(plain, state)
