"""`creator: active_role`: the first active role of a request owns what it creates, in every engine; without one it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests as http
from creator_role_policy import CASES, EFFECT, NO_ROLE, POLICY, files
from wasm_engine import wasm_client

from privtab import Client, Embedded
from privtab.base.errors import InvalidRequest
from privtab.base.request import Decision, Entity, Request
from privtab.bundle import state_bundle
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import Assignment, Grant, State
from privtab_analysis.diff import diff
from privtab_analysis.paths import ReachableRights
from privtab_analysis.permissions import what_can
from privtab_analysis.principals import who_can
from privtab_testing.scenarios.suggest import suggestions


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return load_program(files(tmp_path_factory.mktemp("policy"))[0])


@pytest.fixture(scope="module")
def state(program: Program, tmp_path_factory: pytest.TempPathFactory) -> State:
    found, findings = validate(program, load_raw_state(files(tmp_path_factory.mktemp("state"))[1]))
    assert not findings
    return found


@pytest.fixture(scope="module")
def opa(
    program: Program, state: State, opa_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpaServer]:
    folder = tmp_path_factory.mktemp("bundles")
    artifacts = policy_artifacts(program)
    (folder / "policy.tar.gz").write_bytes(artifacts.bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
    with OpaServer([folder / "policy.tar.gz", folder / "state.tar.gz"], binary=opa_binary) as server:
        yield server


@pytest.fixture(scope="module")
def engines(program: Program, state: State, opa: OpaServer, opa_binary: Path) -> dict[str, Any]:
    return {
        "reference": Reference(program, state),
        "opa": Client(opa.url),
        "python": Embedded(opa.bundles["policy"], opa.bundles["state"]),
        "wasm": wasm_client(program, state, opa_binary),
    }


def request_for(action: str, roles: tuple[str, ...] | None) -> Request:
    return Request(user="ann", action=action, resource=Entity("dataset", "w/new"), active_roles=roles)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["reference", "opa", "python", "wasm"])
def test_the_first_active_role_owns_what_is_created(engine: str, engines: dict[str, Any]) -> None:
    for action, roles, allowed, owner in CASES:
        asked = request_for(action, roles)
        if allowed is None:
            with pytest.raises(
                InvalidRequest, match=r"needs context.active_roles: the first of them becomes the owner"
            ):
                engines[engine].decide(asked)
            continue
        decision: Decision = engines[engine].decide(asked)
        assert decision.allowed is allowed
        texts = [EFFECT if action == "create" else "become owner (dataset:w/new)"] if allowed else []
        assert list(decision.effects) == texts
        rows = [effect.change.row for effect in decision.effects if effect.change]
        assert rows == [{"entity": "dataset:w/new", "owner": owner}] * len(texts)
        if engine != "reference":
            for number in (1, 300):
                assert engines[engine].check_many([asked] * number) == [allowed] * number


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["allow", "decision", "decisions", "items", "visible"])
def test_opa_denies_a_request_without_an_active_role(rule: str, opa: OpaServer) -> None:
    for action, roles, allowed, _ in CASES:
        document = request_for(action, roles).to_json()
        keys = ["workspace:w", "dataset:w/new"]
        body: dict[str, Any] = {
            "decisions": {"requests": [document]},
            "items": {k: v for k, v in document.items() if k != "subject"} | {"items": [["ann", keys]]},
            "visible": document | {"items": [keys]},
        }.get(rule, document)
        path = "decisions" if rule == "items" else rule
        url = f"{opa.url}/v1/data/privtab/studio/{path}"
        found = http.post(url, json={"input": body}, timeout=10).json()["result"]
        if rule == "decision":
            assert found["decision"] is bool(allowed)
            if allowed is None:
                message = "the context must say what the operation needs of it: active_roles"
                assert found["context"]["error"] == {"kind": "invalid_request", "message": message}
                assert found["context"]["effects"] == []
        elif rule == "visible":
            assert found == ([0] if allowed else [])
        else:
            assert found == (bool(allowed) if rule == "allow" else [bool(allowed)])


def test_columns_deny_with_a_reason(program: Program, state: State) -> None:
    batches = Batches(PythonEngine(policy_artifacts(program).program, Index(index_document(program, state))))
    for action, roles, allowed, _ in CASES:
        bare = (
            None if roles is None else pa.array([[role.removeprefix("role:") for role in roles]], pa.list_(pa.string()))
        )
        answers = batches.decide_columns(["ann"], ["w/new"], action=action, type="dataset", active_roles=bare)
        assert list(answers.allowed) == [bool(allowed)]
        assert answers.reason(0) == (NO_ROLE if allowed is None else None)


def test_the_program_survives_its_json(program: Program) -> None:
    again = program_from_json(program_json(program), "studio")
    assert again.semantics.owner == program.semantics.owner
    assert {key: rule.effects for key, rule in again.rules.items()} == {k: r.effects for k, r in program.rules.items()}
    assert again.rules["dataset", "create"].needs_active_role


def test_whoever_names_no_role_creates_nothing(program: Program) -> None:
    state = State(
        assignments=(Assignment(principal="user:ann", role="etl", scope=None),),
        grants=tuple(
            Grant(grantee=user, effect="allow", privilege="WRITE", entity=Entity("workspace", "w"))
            for user in ("user:ann", "user:ben")
        ),
    )
    reference = Reference(program, state)
    assert who_can(reference, state, request_for("create", None)).users == ("ann",)
    for roles, expected in ((None, False), (("etl",), True)):
        answer = what_can(reference, state, "ann", active_roles=roles)
        assert ("create" in {allowed.operation for allowed in answer.allowed}) is expected
        rights = ReachableRights(reference, state, "ann", active_roles=roles)
        assert any(action.rule.operation == "create" for action in rights.actions) is expected


def test_a_diff_from_the_caller_as_the_owner_shows_a_request_that_names_a_role(tmp_path: Path) -> None:
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    after.write_text(POLICY, encoding="utf-8")
    before.write_text(POLICY.replace("creator: active_role", "creator: true"), encoding="utf-8")
    found = diff(load_program(before), load_program(after))
    row = next(row for row in found.rows if row.operation == "create")
    [witness] = row.witnesses
    assert witness.request.active_roles == ("active",)
    assert (len(witness.effects_before), len(witness.effects_after)) == (1, 1)
    assert witness.effects_after[0].startswith("become owner by active_role (")
    assert "active_role" in {detail.after for change in found.declared for detail in change.details}


def test_suggested_needs_leave_out_what_needs_an_active_role(program: Program) -> None:
    text = suggestions(program, {rule.id: (rule, [(frozenset(), (), "item")]) for rule in program.rules.values()})
    assert "# dataset/create needs active roles: write `cases` with `active_roles` for it" in text
    assert "ask: adopt dataset" in text
    assert "ask: create" not in text
