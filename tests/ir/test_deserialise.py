"""Everything that decides survives the way of a program through JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from shipped_policies import FEW, by_release

from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import program_json
from privtab.pipeline import load_program

EVERYTHING = """\
privtab: 1
system: clinic
version: "1"
title: A clinic
sources: {book: {document: book.txt}}
entities: {ward: {file:, chart:, desk:, person:, team:, post:}}
types: {desk: {single: true}, person: {principal: user}, team: {principal: group}, post: {principal: role}}
privileges: {READ: {on: [ward, file, chart]}, SECRET: {on: [file]}, LOOK: {alias_of: READ, deprecated: use READ}}
sets: {ALL: [READ, SECRET]}
roles: {clerk: {scope: ward, grants: {file: [READ], chart: READ}}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, group], creator: true, holds: ALL}, groups: [state, request], gate: member (ward)}
tables:
  chart: {load: owner (chart)}
  file:
    load: READ (file)
    create: {requires: READ (ward), grants: ALL (file), becomes: owner (file)}
    read: {requires: READ (file) and (SECRET (file) when pii), flags: {pii: required}, source: "book:12", note: a word}
    print: can read (file) or owner (file) or service admin
    copy: {requires: can load (object), with: {object: any}}
    list: {each: READ (file), report: errors}
    drop: {requires: owner (file), revokes: ALL (file), destructive: true}
  person: {look: {requires: self, sensitive: true}}
  post: {look: holds (post)}
"""
WORDS = {
    "EntityType": {"title"},
    "Privilege": {"title", "deprecated"},
    "Alias": {"deprecated"},
    "Role": {"title"},
    "Semantics": {"gate"},  # a part of every rule
    "Rule": {"span", "gate", "requires", "creates", "requires_text", "each_text", "note", "deprecated", "ambiguous"},
    "ByType": {"text"},
    "Program": {"sources", "conflicts"},
}
"""What the JSON leaves out; every other field of every node must come back. Of a rule the two properties below come back too."""


def plain(node: Any) -> Any:
    """A node as plain values, without what the JSON leaves out."""
    if is_dataclass(node) and not isinstance(node, type):
        kind = type(node).__name__
        values = {f.name: plain(getattr(node, f.name)) for f in fields(node) if f.name not in WORDS.get(kind, ())}
        if isinstance(node, Rule):
            values |= {"unnamed": node.unnamed, "call": plain(node.call_condition)}
        return {"kind": kind} | values
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.items()}
    return [plain(item) for item in node] if isinstance(node, tuple) else node


def written(program: Program) -> Any:
    return json.loads(json.dumps(program_json(program)))


@pytest.fixture(params=[pytest.param(EVERYTHING, id="everything"), *by_release(quick=FEW)])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    if isinstance(request.param, Path):
        return load_program(request.param)
    (tmp_path / "clinic.yaml").write_text(request.param)
    return load_program(tmp_path / "clinic.yaml")


def test_every_field_survives_the_round_trip(program: Program) -> None:
    restored = program_from_json(written(program), "json")
    assert plain(restored) == plain(program)
    assert program_json(restored) == program_json(program)


def test_the_round_trip_is_proved_on_every_kind_of_value(tmp_path: Path) -> None:
    (tmp_path / "clinic.yaml").write_text(EVERYTHING)
    text = repr(plain(load_program(tmp_path / "clinic.yaml")))
    for kind in ("Has", "Owner", "Member", "Self", "Holds", "ServiceAdmin", "And", "Or", "When", "Can", "ByType"):
        assert f"'kind': '{kind}'" in text, kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=3), "not a program of format 1 or 2"),
        (lambda d: d.pop("sets"), "the program has no `sets`"),
        (lambda d: d["entities"]["file"].update(parent="wing"), "`wing` is not an entity type of the program"),
        (lambda d: d["entities"]["file"].pop("principal"), r"entities\.file has no `principal`"),
        (
            lambda d: d["entities"]["file"].update(principal="robot"),
            r"principal is 'robot', not one of user, group, role",
        ),
        (lambda d: d["privileges"]["READ"].update(on="file"), r"privileges\.READ\.on is not a list"),
        (lambda d: d["semantics"].update(deny="sometimes"), r"semantics\.deny is 'sometimes', not one of"),
        (lambda d: d["rules"].update(wing=d["rules"]["file"]), "`wing` is not an entity type"),
        (lambda d: d["rules"]["file"]["read"].update(unnamed=1), r"rules\.file\.read\.unnamed is not a boolean"),
        (lambda d: d["rules"]["file"]["read"].update(required_flags="pii"), r"required_flags is not a list"),
        (lambda d: d["rules"]["file"]["read"].update(call={"not": {}}), r"read\.call has the unknown node `not`"),
        (lambda d: d["rules"]["file"]["read"].update(call={"or": [], "and": []}), r"read\.call is not a condition"),
    ],
)
def test_mistakes_are_named(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    (tmp_path / "clinic.yaml").write_text(EVERYTHING)
    document = written(load_program(tmp_path / "clinic.yaml"))
    change(document)
    with pytest.raises(ValueError, match=message):
        program_from_json(document, "json")
