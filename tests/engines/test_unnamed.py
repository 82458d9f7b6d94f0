"""A path without its last name ends with `/`, or, where its type tells the number of names, also without: one meaning in every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import requests as http

from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: {column:}}}}
privileges: [CREATE, READ]
tables:
  catalog: {create: service admin}
  schema: {create: {requires: CREATE (catalog), creates: true}}
  table:
    create: {requires: CREATE (schema), creates: true}
    read: READ (table)
"""
STATE = State(
    grants=(
        Grant(grantee="user:ann", effect="allow", privilege="CREATE", entity=Entity("schema", "m/s")),
        Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("table", "m/s/t")),
    )
)
Opa: TypeAlias = Callable[[Request], bool]
SPELT = {"m/s": True, "m/s/": True, "m/s/new": True, "m/t": False, "m/t/": False}
"""Of the table to be, and whether ann may create it."""
WRONG = ("m/", "m", "/", "", "m/s/t/", "m//", "m/s//", "/m/s/")


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("lake.yaml", POLICY))


@pytest.fixture(scope="module")
def opa(program: Program, opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opa]:
    artifacts = policy_artifacts(program)
    bundle = tmp_path_factory.mktemp("lake") / "policy.tar.gz"
    bundle.write_bytes(artifacts.bundle())
    with OpaServer([bundle], binary=opa_binary) as server, http.Session() as session:
        state = index_document(program, STATE)
        session.put(f"{server.url}/v1/data/privtab_state/lake", json=state, timeout=30).raise_for_status()
        yield lambda request: bool(
            session.post(
                f"{server.url}/v1/data/privtab/lake/allow", json={"input": request.to_json()}, timeout=30
            ).json()["result"]
        )


def create(path: str) -> Request:
    return Request(user="ann", action="create", resource=Entity("table", path))


@pytest.mark.parametrize(("path", "allowed"), SPELT.items())
def test_both_spellings_mean_the_same(program: Program, opa: Opa, path: str, allowed: bool) -> None:
    vocabulary(program).check(create(path))
    engine = PythonEngine(policy_artifacts(program).program, Index(index_document(program, STATE)))
    by_columns = engine.batches().decide_columns(["ann"], [path], action="create", type="table")
    answers = [Reference(program, STATE).decide(create(path)).allowed, engine.allow(create(path))]
    answers += [engine.decide(create(path)).allowed, bool(by_columns.allowed[0]), opa(create(path))]
    assert answers == [allowed] * 5


@pytest.mark.parametrize("path", WRONG)
def test_other_paths_are_refused(program: Program, opa: Opa, path: str) -> None:
    with pytest.raises(InvalidRequest):
        vocabulary(program).check(create(path))
    engine = PythonEngine(policy_artifacts(program).program, Index(index_document(program, STATE)))
    assert engine.batches().decide_columns(["ann"], [path], action="create", type="table").reasons[0]
    assert not opa(create(path))


@pytest.mark.parametrize("path", ["m/s/t/", "m/s/"])
def test_where_the_name_is_needed_it_cannot_be_left_out(program: Program, opa: Opa, path: str) -> None:
    read = Request(user="ann", action="read", resource=Entity("table", path))
    with pytest.raises(InvalidRequest):
        vocabulary(program).check(read)
    assert not opa(read)
