"""Objects that requests may leave out: what is asked about them then does not hold, and `when OBJECT` asks only where they are there."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
import requests as http
from engine_agreement import ask, differences, put_state, serving

from privtab import model
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.bundle import state_bundle
from privtab.client.embedded import Embedded
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.language import syntax
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State

POLICY = """
privtab: 1
system: optional
version: "1"
entities: {lake: {schema: {table: }}}
privileges: [READ, CREATE]
tables:
  table:
    copy: {with: {to: [schema, none]}, requires: READ (table) and (CREATE (to) when to)}
    look: {with: {to: [schema, table, none]}, requires: READ (table) or READ (to)}
    move: {with: {to: [schema, none], old: schema}, requires: can copy_here (old) and (CREATE (to) when to)}
  schema:
    copy_here: READ (schema)
"""
STATE = State(
    grants=tuple(
        Grant(grantee="user:ann", effect="allow", privilege=privilege, entity=Entity.parse(entity))
        for privilege, entity in (
            ("READ", "table:l/s/t"),
            ("CREATE", "schema:l/r"),
            ("READ", "schema:l/r"),
        )
    )
)


def asked(action: str, table: str, **objects: str) -> Request:
    with_ = {name: Entity.parse(key) for name, key in objects.items()}
    return Request(user="ann", action=action, resource=Entity("table", table), with_=with_)


CASES = [
    (asked("copy", "l/s/t"), True),
    (asked("copy", "l/s/t", to="schema:l/r"), True),
    (asked("copy", "l/s/t", to="schema:l/s"), False),
    (asked("copy", "l/s/u"), False),
    (asked("look", "l/s/t"), True),
    (asked("look", "l/s/u"), False),
    (asked("look", "l/s/u", to="schema:l/r"), True),
    (asked("look", "l/s/u", to="table:l/s/t"), True),
    (asked("look", "l/s/u", to="table:l/s/u"), False),
    (asked("move", "l/s/u", old="schema:l/r"), True),
    (asked("move", "l/s/u", old="schema:l/r", to="schema:l/r"), True),
    (asked("move", "l/s/u", old="schema:l/r", to="schema:l/s"), False),
    (asked("move", "l/s/u", old="schema:l/s"), False),
]
REFUSED = [
    (asked("copy", "l/s/t", to="table:l/s/t"), "context.with.to is a `table`; it must be of type schema"),
    (asked("copy", "l/s/t", to="schema:l"), "wrong depth"),
    (asked("move", "l/s/u", to="schema:l/r"), "needs context.with.old"),
]


def test_every_engine(opa_binary: Path, tmp_path: Path) -> None:
    requests, allowed = [request for request, _ in CASES], [answer for _, answer in CASES]
    with serving([POLICY], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, STATE)
        reference = Reference(world.program, STATE)
        assert [reference.decide(request).allowed for request in requests] == allowed
        assert differences(session, url, world, STATE, requests) == []
        for request, message in REFUSED:
            assert ask(session, url, "optional", "allow", request.to_json()) is False
            with pytest.raises(InvalidRequest, match=message):
                reference.decide(request)
        engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, STATE)))
        assert [engine.allow(request) for request in requests] == allowed
        assert engine.columns(requests * 100) == allowed * 100
        (tmp_path / "state.tar.gz").write_bytes(state_bundle(world.program, STATE))
        (tmp_path / "policy.tar.gz").write_bytes(world.artifacts.bundle())
    with Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz") as client:
        assert client.check("ann", "copy", "table:l/s/t")
        assert not client.check("ann", "copy", "table:l/s/t", with_={"to": "schema:l/s"})


@pytest.mark.parametrize("action", ["copy", "look"])
def test_columns_with_and_without_the_object(action: str) -> None:
    program = load_program(SourceFile(path="optional.yaml", text=POLICY))
    batches = PythonEngine(policy_artifacts(program).program, Index(index_document(program, STATE))).batches()
    rows = [case for case in CASES if case[0].action == action]
    tables = [request.resource.id for request, _ in rows]
    objects = [request.with_.get("to") for request, _ in rows]
    kinds, paths = ([getattr(o, name, None) for o in objects] for name in ("type", "id"))
    found = batches.decide_columns(
        pa.array(["ann"] * len(rows)),
        pa.array(tables),
        action=action,
        type="table",
        with_={"to": (pa.array(kinds, pa.string()), pa.array(paths, pa.string()))},
    )
    assert found.allowed.tolist() == [answer for _, answer in rows]
    assert not found.reasons.any()
    without = [number for number, o in enumerate(objects) if o is None]
    alone = batches.decide_columns(
        pa.array(["ann"] * len(without)), pa.array([tables[n] for n in without]), action=action, type="table"
    )
    assert alone.allowed.tolist() == [rows[n][1] for n in without]


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ("{with: {to: [none]}, requires: READ (table)}", "P214 no entity type fits the object `to`"),
        (
            "{with: {to: schema}, requires: READ (table) and (CREATE (to) when to)}",
            "P009 `to` is an object that every request has",
        ),
        ("{with: {to: [schema, none]}, requires: READ (to), grants: READ (to)}", "P009 `to` may be left out"),
    ],
)
def test_mistakes(row: str, finding: str) -> None:
    text = POLICY.split("tables:", maxsplit=1)[0] + f"tables: {{table: {{copy: {row}}}}}\n"
    tables, found = syntax.read_policy(SourceFile.of("optional.yaml", text))
    assert tables is not None
    _, of_model = model.resolve(tables)
    lines = [f"{finding.code} {finding.message}" for finding in itertools.chain(found, of_model)]
    assert any(line.startswith(finding) for line in lines), lines
