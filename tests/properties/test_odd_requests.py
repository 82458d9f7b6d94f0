"""Names that are none are refused by every engine in the same way, and never allowed by an OPA that is asked directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests as http
from engine_agreement import ask, put_state, serving
from wasm_engine import wasm_client

from privtab import Client
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.bundle import state_bundle
from privtab.client.embedded import Embedded
from privtab.engines.python import MANY
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Assignment, State

POLICY = """
privtab: 1
system: open
version: '1'
entities: {top: {thing:, user:, group:, role:}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides, groups: [state, request]}
tables:
  thing: {see: anyone, list: {each: anyone}, move: {with: {to: thing}, requires: anyone}}
  user: {see: self or anyone}
  group: {see: member (group) or anyone}
  role: {see: holds (role) or anyone}
"""
STATE = State(assignments=(Assignment(principal="user:ann", role="r"),))
GOOD = Request(user="ann", action="see", resource=Entity("thing", "t/x"))


def odd_request(user: str = "ann", resource: str = "thing:t/x", action: str = "see", **more: Any) -> Request:
    return Request(user=user, action=action, resource=Entity.parse(resource), **more)


EMPTY = (
    odd_request(user=""),
    odd_request(groups=("",)),
    odd_request(groups=("hr", "")),
    *(
        odd_request(resource=f"{type_}:{path}")
        for type_ in ("thing", "user", "group", "role")
        for path in ("t/", "/x", "/", "t//x")
    ),
    odd_request(action="move", with_={"to": Entity("thing", "t/")}),
    odd_request(action="move", with_={"to": Entity("thing", "/x")}),
)
HALF = (
    odd_request(user="\ud800"),
    odd_request(groups=("\udfff",)),
    odd_request(resource="thing:t/\ud83d"),
    odd_request(resource="role:\udc00/x"),
    odd_request(action="move", with_={"to": Entity("thing", "t/\ud800")}),
)


@pytest.mark.slow
def test_invalid_names_are_refused_by_every_engine(opa_binary: Path, tmp_path: Path) -> None:
    with serving([POLICY], opa_binary) as (url, (world,)), http.Session() as session:
        put_state(session, url, world.program, STATE)
        reference = Reference(world.program, STATE)
        policy, state = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
        policy.write_bytes(world.artifacts.bundle())
        state.write_bytes(state_bundle(world.program, STATE))
        with (
            Embedded(policy, state) as python,
            wasm_client(world.program, STATE, opa_binary) as in_wasm,
            Client(url) as client,
        ):
            assert python.check(GOOD)
            assert in_wasm.check(GOOD)
            assert client.check(GOOD)
            assert reference.decide(GOOD).allowed
            for request in (*EMPTY, *HALF):
                with pytest.raises(InvalidRequest):
                    reference.decide(request)
                for engine in (python, in_wasm, client):
                    for ask_it in (engine.check, engine.decide):
                        with pytest.raises(InvalidRequest):
                            ask_it(request)
                    for many in ([request], [GOOD] * MANY + [request]):
                        try:
                            answers = engine.check_many(many)
                        except InvalidRequest:
                            continue
                        pytest.fail(f"{request} was answered with {answers[-1]} by {engine}")
            for engine in (python, in_wasm, client):
                for user, groups, item in (
                    ("", (), "t/x"),
                    ("ann", ("",), "t/x"),
                    ("ann", (), "t/"),
                    ("\ud800", (), "t/x"),
                    ("ann", (), "t/\ud800"),
                ):
                    with pytest.raises(InvalidRequest):
                        engine.visible(user, "list", "thing", [item], groups=groups)
            for request in EMPTY:
                sent = request.to_json()
                for rule in ("allow", "check"):
                    assert ask(session, url, "open", rule, sent) is False, request
                assert ask(session, url, "open", "decision", sent)["decision"] is False, request
                assert ask(session, url, "open", "decisions", {"requests": [sent]}) == [False], request
            shared = {"action": {"name": "see"}, "resource": {"type": "thing"}}
            items = [
                ["ann", ["top:t", "thing:t/x"]],
                ["", ["top:t", "thing:t/x"]],
                ["ann", ["top:t", "thing:t/"]],
                ["ann", ["top:", "thing:/x"]],
            ]
            assert ask(session, url, "open", "decisions", {**shared, "items": items}) == [True, False, False, False]
        columns = Embedded(policy, state).batches().decide_columns(
            pa.array(["ann", "", "ann", "ann"]), pa.array(["t/x", "t/x", "t/", "/x"]), action="see", type="thing",
            groups=pa.array([[], [], [], []], pa.list_(pa.string())),
        )  # fmt: skip
        assert columns.allowed.tolist() == [True, False, False, False]
        assert [columns.reason(row) for row in range(4)] == [None, "null", "wrong depth", "malformed path"]
