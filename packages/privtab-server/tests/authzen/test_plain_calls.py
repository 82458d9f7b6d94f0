"""Plain evaluations, which are read with fewer steps, are answered as all others are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from authzen_server import library_in
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

from privtab import Embedded
from privtab.base import InvalidRequest, Request, Vocabulary
from privtab.bundle import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import State
from privtab_server.authzen import messages
from privtab_server.authzen.app import EVALUATION, EVALUATIONS, AppSettings, application
from privtab_server.authzen.messages import Malformed
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

TEXTS = st.sampled_from(["", "user", "user:ann", "group:g", "ann", "read", "record", "a/b", "a%2Fb"])
ANY: st.SearchStrategy[Any] = st.one_of(TEXTS, st.none(), st.just(1), st.just([]), st.just({}))
POLICY = """\
privtab: 1
system: notes
version: "1"
entities: {record:, note:}
types: {note: {flat: true}}
privileges: [READ]
semantics: {groups: [state, request]}
tables: {record: {read: READ (record)}, note: {read: READ (note)}}
"""


def part(*keys: str) -> st.SearchStrategy[Any]:
    """An object that mostly has these keys alone, each mostly with a text."""
    usual = st.fixed_dictionaries(dict.fromkeys(keys, TEXTS))
    odd = st.dictionaries(st.sampled_from([*keys, "properties", "more"]), ANY, max_size=4)
    return st.one_of(usual, usual, usual, odd, ANY)


BODIES = st.fixed_dictionaries(
    {"subject": part("type", "id"), "action": part("name"), "resource": part("type", "id")},
    optional={"context": st.one_of(st.just({}), st.just({"pii": True}), ANY)},
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("notes") / "notes.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return Vocabulary.from_program(policy_artifacts(load_program(path)).program)


@given(body=BODIES)
def test_a_body_is_read_as_a_request_from_json_is(body: dict[str, Any], vocabulary: Vocabulary) -> None:
    try:
        checked = messages.evaluation(body)
    except Malformed:
        for name, needed in {"subject": ("type", "id"), "action": ("name",), "resource": ("type", "id")}.items():
            if not isinstance(body[name], dict) or not all(isinstance(body[name].get(key), str) for key in needed):
                return
        assert not all(isinstance(p.get("properties", {}), dict) for p in body.values() if isinstance(p, dict)) or (
            not isinstance(body.get("context", {}), dict)
        )
        return

    def read(one: Callable[[], Request]) -> Request | str:
        try:
            return one()
        except InvalidRequest as error:
            return str(error)

    assert read(lambda: messages.request(checked, vocabulary)) == read(lambda: Request.from_json(body, vocabulary))


@pytest.mark.parametrize("prefix", ["", "/pdp"])
def test_calls_are_answered_where_the_application_is_mounted(tmp_path: Path, prefix: str) -> None:
    policy, _ = library_in(tmp_path)
    program = load_program(policy)
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, State()))
    point = LocalDecisionPoint(Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"))
    app: Any = application(AppSettings(services={"": Service(point, brief=True)}, base="http://pdp"))
    mounted = Starlette(routes=[Mount(prefix, app)]) if prefix else app
    asked = {
        "subject": {"type": "user", "id": "nobody"},
        "action": {"name": "read"},
        "resource": {"type": "record", "id": "record-1"},
    }

    async def send() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=mounted), base_url="http://pdp") as client:
            return [
                await client.post(prefix + EVALUATION, json=asked),
                await client.post(prefix + EVALUATIONS, json={"evaluations": [asked] * 3}),
                await client.post(prefix + EVALUATION, content=b"{", headers={"Content-Type": "application/json"}),
                await client.get(prefix + EVALUATION),
            ]

    single, many, broken, read = asyncio.run(send())
    assert single.json() == {"decision": False}
    assert many.json() == {"evaluations": [{"decision": False}] * 3}
    assert [answer.status_code for answer in (broken, read)] == [400, 405]
    assert all(answer.headers["X-Request-ID"] for answer in (single, many, broken, read))
