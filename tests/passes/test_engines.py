"""Every engine runs the program after the passes, and decides as the reference does on the program as written."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import requests as http
from wasm_engine import WasmEngine

from privtab import pipeline
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir import passes
from privtab.ir.nodes import ALWAYS, Program
from privtab.ir.serialise import formula_json, program_json
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

POLICY = """\
privtab: 1
system: museum
version: "1"
entities: {museum: {hall: {desk:}}}
types: {desk: {single: true}}
privileges: [READ, OPEN]
semantics: {inheritance: down, owner: {holds: [READ]}, gate: READ (hall)}
tables:
  museum: {get: {gate: none, requires: READ (museum)}}
  hall:
    load: READ (hall)
    list: {requires: READ (museum), each: OPEN (hall)}
    walk: {requires: owner (museum), each: OPEN (hall)}
    open: {requires: can sit (desk), each: OPEN (hall)}
  desk: {sit: READ (museum)}
"""
"""`READ (museum)` gives `READ (hall)`, the gate, of every hall that has a name, and of no other."""
ROWS = [{"grantee": "user:ann", "effect": "allow", "privilege": p, "entity": "museum:m"} for p in ("READ", "OPEN")]
STATE = {"grants": ROWS, "owners": [{"entity": "museum:m", "owner": "user:bob"}]}


def museum(folder: Path) -> Program:
    (folder / "museum.yaml").write_text(POLICY)
    return pipeline.load_program(folder / "museum.yaml")


def test_the_program_in_a_bundle_is_the_one_after_the_passes() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    packed = policy_artifacts(program).program
    after = passes.run(program)
    for (entity, operation), rule in after.rules.items():
        assert packed["rules"][entity][operation]["call"] == formula_json(rule.call_condition)
    written = program_json(program)
    changed = [key for key, rule in after.rules.items() if rule.call_condition != program.rules[key].call_condition]
    assert changed
    for entity, operation in changed:
        ours, theirs = packed["rules"][entity][operation], written["rules"][entity][operation]
        assert {key for key in theirs if ours[key] != theirs[key]} <= {"call", "each"}


def test_a_gate_stays_that_a_request_without_the_last_name_would_miss(tmp_path: Path) -> None:
    after = passes.run(museum(tmp_path))
    for operation in ("list", "walk"):
        assert after.rules["hall", operation].gate != ALWAYS, operation
    assert after.rules["desk", "sit"].gate != ALWAYS
    for operation in ("load", "open"):  # `open` asks for it by `can sit`
        assert after.rules["hall", operation].gate == ALWAYS, operation


@pytest.mark.parametrize("engine", ["opa", "python", "wasm"])
def test_engines_after_the_passes_agree_with_the_reference_before(
    engine: str, tmp_path: Path, opa_binary: Path
) -> None:
    program = museum(tmp_path)
    state, findings = validate(program, from_tables(STATE, "museum"))
    assert not findings
    requests = [
        Request(user=user, action=operation, resource=Entity("hall", path))
        for user, operation, path in itertools.product(("ann", "bob"), ("list", "walk", "open"), ("m", "m/h"))
    ]
    reference = Reference(program, state)
    expected = [reference.decide(request).allowed for request in requests]
    assert not any(allowed for request, allowed in zip(requests, expected, strict=True) if request.resource.id == "m")
    assert any(expected)
    artifacts, document = policy_artifacts(program), index_document(program, state)
    if engine != "opa":
        opened = (
            WasmEngine(program, state, opa_binary)
            if engine == "wasm"
            else PythonEngine(artifacts.program, Index(document))
        )
        assert [opened.allow(request) for request in requests] == expected
        assert opened.allow_many(requests) == expected
        assert [decision.allowed for decision in opened.decide_many(requests)] == expected
    else:
        bundle = tmp_path / "policy.tar.gz"
        bundle.write_bytes(artifacts.bundle())
        with OpaServer([bundle], binary=opa_binary) as server:
            http.put(f"{server.url}/v1/data/privtab_state/museum", json=document, timeout=10).raise_for_status()
            body = {"input": {"requests": [request.to_json() for request in requests]}}
            answer = http.post(f"{server.url}/v1/data/privtab/museum/decisions", json=body, timeout=10)
        assert answer.json()["result"] == expected
