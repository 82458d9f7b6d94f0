"""A flag that is required must be said, true or false: every engine refuses a request that forgets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests as http
import required_flag_policy
from wasm_engine import wasm_client

from privtab import Client, Embedded, pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.bundle import state_bundle
from privtab.client import Asker
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

POLICY = f"""\
{required_flag_policy.POLICY}\
    print: {{requires: can read (file) and (WRITE (file) when colour), flags: {{colour: optional}}}}
    list: {{each: can read (file)}}
    write: WRITE (file) and (SECRET (file) when pii)
"""
ROWS = [
    {"grantee": "user:ann", "effect": "allow", "privilege": privilege, "entity": "ward:w"}
    for privilege in ("READ", "WRITE")
]
NEEDS = "needs the flag `pii`: say whether it is set, true or false"
CASES: tuple[tuple[str, frozenset[str], bool | None], ...] = (
    ("read", frozenset(), None),
    ("read", frozenset({"pii"}), False),
    ("read", frozenset({"pii=false"}), True),
    ("print", frozenset(), None),
    ("print", frozenset({"colour"}), None),
    ("print", frozenset({"pii"}), False),
    ("print", frozenset({"pii=false"}), True),
    ("print", frozenset({"pii=false", "colour"}), True),
    ("list", frozenset(), None),
    ("list", frozenset({"pii=false"}), True),
    ("write", frozenset(), True),
    ("write", frozenset({"pii"}), False),
    ("write", frozenset({"pii=false"}), True),
)
"""Operation, what is said of flags, and the answer for ann; None: the request is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clinic:
    """The policy with a state, and clients of it."""

    program: Program
    state: State
    clients: Mapping[str, Asker]
    """By engine."""
    url: str


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory, opa_binary: Path) -> Iterator[Clinic]:
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "clinic.yaml").write_text(POLICY, encoding="utf-8")
    program = pipeline.load_program(folder / "clinic.yaml")
    state, findings = validate(program, from_tables({"grants": ROWS}, "clinic"))
    assert not findings
    artifacts = policy_artifacts(program)
    policy, who = (folder / f"{name}.tar.gz" for name in ("policy", "state"))
    policy.write_bytes(artifacts.bundle())
    who.write_bytes(state_bundle(program, state))
    with OpaServer({"policy": policy, "state": who}, binary=opa_binary) as opa:
        yield Clinic(
            program=program,
            state=state,
            clients={
                "opa": Client(opa.url),
                "python": Embedded(policy, who),
                "wasm": wasm_client(program, state, opa_binary),
            },
            url=opa.url,
        )


def request_with(action: str, flags: frozenset[str]) -> Request:
    return Request(user="ann", action=action, resource=Entity("file", "w/1"), flags=flags)


def test_a_row_that_requires_another_by_can_requires_its_flag(clinic: Clinic) -> None:
    shapes = vocabulary(clinic.program).operations["file"]
    assert {name: sorted(shape.required_flags) for name, shape in shapes.items()} == {
        "read": ["pii"], "print": ["pii"], "list": ["pii"], "write": [],
    }  # fmt: skip


@pytest.mark.parametrize(("action", "flags", "allowed"), CASES)
def test_the_reference(clinic: Clinic, action: str, flags: frozenset[str], allowed: bool | None) -> None:
    reference = Reference(clinic.program, clinic.state)
    if allowed is None:
        with pytest.raises(InvalidRequest, match=NEEDS):
            reference.decide(request_with(action, flags))
    else:
        assert reference.decide(request_with(action, flags)).allowed is allowed


@pytest.mark.parametrize("rule", ["allow", "check", "decision", "decisions", "explained", "visible", "items"])
def test_opa_over_http_denies_with_a_reason(clinic: Clinic, rule: str) -> None:
    for action, flags, allowed in CASES:
        document = request_with(action, flags).to_json()
        keys = ["ward:w", "file:w/1"]
        body: dict[str, Any] = {
            "decisions": {"requests": [document]},
            "explained": {"requests": [document]},
            "visible": document | {"items": [keys]},
            "items": {key: document[key] for key in ("action", "resource", "context") if key in document}
            | {"items": [["ann", keys]]},
        }.get(rule, document)
        path = "decisions" if rule == "items" else rule
        answer = http.post(f"{clinic.url}/v1/data/privtab/clinic/{path}", json={"input": body}, timeout=10).json()
        found = answer["result"]
        match rule:
            case "decision" | "explained":
                decision = found[0] if rule == "explained" else found
                assert decision["decision"] is bool(allowed), (action, flags)
                if allowed is None:
                    message = decision["context"]["error"]["message"]
                    assert message == "the context must say of these flags whether they are set, true or false: pii"
                else:
                    assert "error" not in decision["context"]
            case "visible":
                assert found == ([0] if allowed else []), (action, flags)
            case "decisions" | "items":
                assert found == [bool(allowed)], (action, flags)
            case _:
                assert found is bool(allowed), (action, flags)


@pytest.mark.parametrize("kind", ["opa", "python", "wasm"])
def test_clients_refuse_requests_without_the_flag(clinic: Clinic, kind: str) -> None:
    with clinic.clients[kind] as client:
        for action, flags, allowed in CASES:
            if allowed is None:
                for ask in (client.check, client.decide):
                    with pytest.raises(InvalidRequest, match="needs the flag `pii`"):
                        ask("ann", action, "file:w/1", flags=flags)
                for number in (1, 300):
                    with pytest.raises(InvalidRequest, match="needs the flag `pii`"):
                        client.check_many([request_with(action, flags)] * number)
                with pytest.raises(InvalidRequest, match="needs the flag `pii`"):
                    client.visible("ann", action, "file", ["w/1"], flags=flags)
            else:
                assert client.check("ann", action, "file:w/1", flags=flags) is allowed
                assert client.decide("ann", action, "file:w/1", flags=flags).allowed is allowed
                for number in (1, 300):
                    assert client.check_many([request_with(action, flags)] * number) == [allowed] * number
                assert client.visible("ann", action, "file", ["w/1"], flags=flags) == (["w/1"] if allowed else [])
        assert client.check("ann", "read", "file:w/1", flags={"pii": False})
        assert not client.check("ann", "read", "file:w/1", flags={"pii": True})
        with pytest.raises(InvalidRequest, match="say True or False"):
            client.check("ann", "read", "file:w/1", flags={"pii": None})
        with pytest.raises(InvalidRequest, match="unknown flag `ppi=false`"):
            client.check("ann", "read", "file:w/1", flags=["pii", "ppi=false"])


def test_columns_deny_with_a_reason(clinic: Clinic) -> None:
    artifacts = policy_artifacts(clinic.program)
    engine = PythonEngine(artifacts.program, Index(index_document(clinic.program, clinic.state)))
    batches = Batches(engine)
    for action, flags, allowed in CASES:
        answers = batches.decide_columns(["ann"], ["w/1"], action=action, type="file", flags=flags)
        assert list(answers.allowed) == [bool(allowed)], (action, flags)
        assert answers.reason(0) == ("a required flag is missing" if allowed is None else None)
        assert batches.allow_requests([request_with(action, flags)]) == (None if allowed is None else [allowed])
    decided = batches.decide_columns(
        ["ann"] * 3, ["w/1"] * 3, action="read", type="file", flags={"pii": [True, False, None]}
    )
    assert list(decided.allowed) == [False, True, False]
    for_all = batches.decide_columns(["ann"], ["w/1"], action="read", type="file", flags={"pii": False})
    assert list(for_all.allowed) == [True]
    mixed = batches.decide_columns(["ann"] * 2, ["w/1"] * 2, action=pa.array(["read", "write"]), type="file")
    assert (list(mixed.allowed), mixed.reason(0), mixed.reason(1)) == (
        [False, True], "a required flag is missing", None,
    )  # fmt: skip


def test_a_policy_without_such_flags_has_none_in_its_program() -> None:
    program = pipeline.load_program("streams/teracloud")
    files = policy_artifacts(program).files()
    programs = [content for name, content in files.items() if name.endswith(".json")]
    assert programs
    assert not any(b"required_flags" in content for content in programs)
