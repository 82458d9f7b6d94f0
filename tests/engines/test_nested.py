"""Paths on which a type nests: the engines against the reference, and what is no path."""

from __future__ import annotations

from pathlib import Path

import pytest
import worlds
from wasm_engine import WasmEngine

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State

LAKE = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {namespace: {table:, settings:}}}
types: {namespace: {nested: 4}, settings: {single: true}}
privileges: [USE, READ, CREATE]
semantics: {inheritance: INHERITANCE, deny: overrides, owner: {kinds: [user]}}
tables:
  table:
    load: READ (table) and USE (every namespace)
    find: USE (any namespace)
    list: {requires: USE (namespace), each: READ (table)}
    create: {requires: CREATE (namespace), creates: true}
    drop: owner (table) or owner (first namespace)
    empty: owner (any namespace)
  namespace:
    create: {requires: CREATE (parent), creates: true}
    list: {requires: USE (parent), each: anyone}
    seize: {requires: 'USE (any namespace) or CREATE (namespace) or USE (every namespace)', each: anyone}
    rename: owner (every namespace)
    greet: member (parent)
  settings:
    change: CREATE (settings)
"""


def program_of(text: str, folder: Path, name: str = "policy") -> Program:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return pipeline.load_program(path)


def allow(grantee: str, privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(grantee=f"user:{grantee}", effect=effect, privilege=privilege, entity=Entity.parse(entity))  # type: ignore[arg-type]


def may(reference: Reference, user: str, action: str, resource: str) -> bool:
    return reference.decide(Request(user=user, action=action, resource=Entity.parse(resource))).allowed


@pytest.fixture
def lake(tmp_path: Path) -> Program:
    return program_of(LAKE.replace("INHERITANCE", "down"), tmp_path)


@pytest.fixture
def alone(tmp_path: Path) -> Program:
    return program_of(LAKE.replace("INHERITANCE", "none"), tmp_path)


def test_a_grant_counts_on_all_levels_below_and_a_denial_too(lake: Program) -> None:
    grants = (
        allow("ann", "USE", "namespace:c/a"),
        allow("ann", "READ", "catalog:c"),
        allow("ann", "READ", "namespace:c/a/b", "deny"),
    )
    reference = Reference(lake, State(grants=grants))
    assert may(reference, "ann", "load", "table:c/a/t")
    assert not may(reference, "ann", "load", "table:c/a/b/t")
    assert not may(reference, "ann", "load", "table:c/a/b/d/t")
    assert not may(reference, "ann", "load", "table:c/other/t")


def test_each_word_names_its_levels(alone: Program) -> None:
    grants = (
        allow("ann", "USE", "namespace:c/a"),
        allow("ann", "READ", "table:c/a/b/t"),
        allow("bob", "USE", "catalog:c"),
    )
    owners = ((Entity.parse("namespace:c/a"), "user:cy"), (Entity.parse("namespace:c/a/b"), "user:dee"))
    reference = Reference(alone, State(grants=grants, owners=owners))
    assert not may(reference, "ann", "load", "table:c/a/b/t"), "`every` includes namespace:c/a/b"
    assert may(reference, "ann", "find", "table:c/a/b/t")
    assert not may(reference, "bob", "find", "table:c/a/b/t")
    assert may(reference, "cy", "drop", "table:c/a/b/t")
    assert not may(reference, "dee", "drop", "table:c/a/b/t")
    assert may(reference, "dee", "empty", "table:c/a/b/t")
    assert not may(reference, "dee", "rename", "namespace:c/a/b")
    assert may(reference, "cy", "rename", "namespace:c/a")


def test_the_parent_is_a_namespace_or_the_catalog(alone: Program) -> None:
    reference = Reference(
        alone, State(grants=(allow("ann", "CREATE", "catalog:c"), allow("bob", "CREATE", "namespace:c/a")))
    )
    assert may(reference, "ann", "create", "namespace:c/")
    assert may(reference, "ann", "create", "namespace:c/new")
    assert not may(reference, "ann", "create", "namespace:c/a/")
    assert may(reference, "bob", "create", "namespace:c/a/")
    assert not may(reference, "bob", "create", "namespace:c/")


def test_members_of_the_type_around_are_in_the_index(alone: Program) -> None:
    """Only a condition on `parent` reads members of catalogs."""
    state = State(members=(("ann", Entity.parse("catalog:c")), ("ann", Entity.parse("namespace:c/a"))))
    engine = PythonEngine(policy_artifacts(alone).program, Index(index_document(alone, state)))
    for path, allowed in (("c/a", True), ("c/a/b", True), ("d/a", False), ("c/b/d", False)):
        request = Request(user="ann", action="greet", resource=Entity("namespace", path))
        assert engine.allow(request) == Reference(alone, state).decide(request).allowed == allowed


def test_an_unnamed_call_holds_nothing_on_what_is_to_be(lake: Program) -> None:
    """Not even by inheritance: only what an outer level gives by itself."""
    grants = (allow("ann", "USE", "catalog:c"), allow("ann", "CREATE", "catalog:c"))
    reference = Reference(lake, State(grants=grants))
    assert not may(reference, "ann", "seize", "namespace:c/")
    assert may(reference, "ann", "seize", "namespace:c/a/"), "`any namespace` is namespace:c/a"
    assert may(reference, "ann", "seize", "namespace:c/a")


@pytest.mark.parametrize(
    ("action", "resource", "message"),
    [
        ("load", "table:c/t", "`table:c/t` has 2 name(s), a `table` path has 3 to 6 (catalog/namespace/…/table)"),
        ("load", "table:c/1/2/3/4/5/t", "has 7 name(s), a `table` path has 3 to 6"),
        ("load", "table:c/a/b/", "a name is empty"),
        ("list", "table:c/a//", "a name is empty"),
        ("list", "table:c//t", "a name is empty"),
        ("list", "table:c", "a call without the last name ends with `/`: `table:c/`"),
        ("list", "namespace:c", "a call without the last name ends with `/`: `namespace:c/`"),
        ("list", "table:c/*/t", "there are no wildcards"),
        ("change", "settings:c/a/", "a name is empty"),
    ],
)
def test_invalid_paths(action: str, resource: str, message: str, lake: Program) -> None:
    with pytest.raises(InvalidRequest) as refused:
        vocabulary(lake).check(Request(user="ann", action=action, resource=Entity.parse(resource)))
    assert message in str(refused.value)


@pytest.mark.parametrize("resource", ["table:c/a/t", "table:c/1/2/3/4/t", "table:c/a/", "table:c/1/2/3/4/"])
def test_valid_paths(resource: str, lake: Program) -> None:
    vocabulary(lake).check(Request(user="ann", action="list", resource=Entity.parse(resource)))


def test_the_program_is_read_back_as_it_was_written(lake: Program) -> None:
    document = policy_artifacts(lake).program
    assert document["format"] == 2
    read = program_from_json(document, "lake.json")
    assert read.entities["namespace"].nested == 4
    assert {pair: rule.requires for pair, rule in read.rules.items()} == {
        pair: rule.requires for pair, rule in pipeline.optimised(lake).rules.items()
    }


def test_columns_tell_why_a_row_is_no_request(lake: Program) -> None:
    state = State(grants=(allow("ann", "USE", "catalog:c"), allow("ann", "READ", "catalog:c")))
    batches = Batches(PythonEngine(policy_artifacts(lake).program, Index(index_document(lake, state))))
    paths = ["c/a/t", "c/a/b/t", "d/a/t", "c/t", "c/1/2/3/4/5/t", "c//t", "c/a/", "c/%/t", ""]
    answers = batches.decide_columns(["ann"] * len(paths), paths, action="load", type="table")
    assert answers.allowed.tolist() == [True, True, *[False] * 7]
    reasons = [answers.reason(row) for row in range(len(paths))]
    assert reasons[:3] == [None, None, None]
    assert reasons[3] == reasons[4] != reasons[5]
    assert reasons[5:8] == [reasons[5]] * 3
    assert reasons[8] == reasons[3]
    listed = batches.decide_columns(["ann", "ann"], ["c/a/", "c/a/b"], action="list", type="table")
    assert listed.allowed.tolist() == [True, True]


def test_listings_have_items_of_different_depth(lake: Program) -> None:
    state = State(grants=(allow("ann", "USE", "namespace:c/a"), allow("ann", "READ", "namespace:c/a/b")))
    engine = PythonEngine(policy_artifacts(lake).program, Index(index_document(lake, state)))
    items = [Entity("table", path) for path in ("c/a/t", "c/a/b/t", "c/a/b/d/t", "c/e/t")]
    request = Request(user="ann", action="list", resource=Entity("table", "c/a/"))
    assert engine.visible(request, items) == [1, 2]
    assert engine.visible(request, []) == []


def compared(seeds: range, folder: Path, per_rule: int) -> tuple[int, int]:
    total = allowed = 0
    for seed in seeds:
        text = worlds.policy(seed, features=("nested", "below", "implies") if seed % 2 else ("nested", "implies"))
        program = program_of(text, folder, str(seed))
        artifacts = policy_artifacts(program)
        state = worlds.state(program, seed)
        reference = Reference(program, state, artifacts.revision)
        engine = PythonEngine(artifacts.program, Index(index_document(program, state)))
        requests = worlds.requests(program, seed, per_rule)
        expected = [reference.decide(request) for request in requests]
        assert engine.decide_many(requests) == expected, text
        assert [engine.allow(request) for request in requests] == [decision.allowed for decision in expected]
        many = requests * (1000 // len(requests) + 1)
        assert engine.allow_many(many) == [d.allowed for d in expected] * (1000 // len(requests) + 1)
        total, allowed = total + len(requests), allowed + sum(decision.allowed for decision in expected)
    return total, allowed


def test_every_part_of_every_decision_is_the_references(tmp_path: Path) -> None:
    total, allowed = compared(range(300, 302), tmp_path, 3)
    assert total > 60
    assert 0.1 < allowed / total < 0.9


@pytest.mark.slow
def test_every_part_of_very_many_decisions_is_the_references(tmp_path: Path) -> None:
    total, allowed = compared(range(400, 430), tmp_path, 6)
    assert total > 2_000
    assert 0.1 < allowed / total < 0.9


@pytest.mark.slow
def test_wasm_decides_as_the_reference(tmp_path: Path, opa_binary: Path) -> None:
    total = 0
    for seed in range(500, 505):
        program = program_of(
            worlds.policy(seed, features=("nested", "below", "implies") if seed % 2 else ("nested", "implies")),
            tmp_path,
            str(seed),
        )
        state = worlds.state(program, seed)
        artifacts = policy_artifacts(program)
        engine = WasmEngine(program, state, opa_binary)
        reference = Reference(program, state, artifacts.revision)
        requests = worlds.requests(program, seed, 3)
        expected = [reference.decide(request) for request in requests]
        assert engine.decide_many(requests) == expected
        assert engine.allow_many(requests) == [decision.allowed for decision in expected]
        plain = [n for n, r in enumerate(requests) if not (r.with_ or r.flags or r.groups)]
        assert engine.allow_many([requests[n] for n in plain]) == [expected[n].allowed for n in plain]
        total += len(requests)
    assert total > 200
