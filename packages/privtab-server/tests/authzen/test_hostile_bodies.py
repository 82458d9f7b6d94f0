"""Hostile bodies, thousands of them: each is refused or answered, none ends in an error of ours, none is allowed by mistake."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from privtab import Embedded
from privtab.bundle import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_server.authzen.app import AppSettings, application
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

PATHS = [
    f"/access/v1/{at}" for at in ("evaluation", "evaluations", "search/subject", "search/resource", "search/action")
]
ASKED: dict[str, Any] = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "read"},
    "resource": {"type": "record", "id": "record-1"},
}
GRANTED = {("alice", "read", "record-1"), ("alice", "write", "record-1"), ("bob", "read", "record-1")}
GRANTED |= {("bob", "write", "record-2")}
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12),
    st.sampled_from(["alice", "bob", "user", "record", "record-1", "record-2", "read", "write", "user:alice", "*", ""]),
)  # fmt: skip
KEYS = (
    "subject action resource context type id name properties groups with evaluations options evaluations_semantic page limit token "
    "flags x"
)
keys = st.sampled_from(KEYS.split())
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=12
)
places = st.sampled_from([["subject"], ["subject", "id"], ["subject", "type"], ["action"], ["action", "name"], ["resource"],
    ["resource", "id"], ["resource", "type"], ["context"], ["evaluations"], ["page"], ["subject", "properties"], ["options"]])  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A question with some of its parts replaced, as text that may be harmed."""
    body: Any = copy.deepcopy(ASKED)
    for place in draw(st.lists(places, max_size=3)):
        at: Any = body
        for key in place[:-1]:
            at = at[key] if isinstance(at, dict) and isinstance(at.get(key), dict) else body
        at[place[-1]] = draw(values)
    text = json.dumps(draw(st.sampled_from([body, {"evaluations": [body, ASKED]}, [body], ASKED])))
    if draw(st.integers(0, 5)) == 0:
        cut = draw(st.integers(0, len(text)))
        text = text[:cut] + draw(st.text(max_size=5)) + text[cut + draw(st.integers(0, 5)) :]
    if draw(st.integers(0, 9)) == 0:
        text = text.replace('"id":', draw(st.sampled_from(['"id": "bob", "id":', '"id": {"id": 1}, "i":'])), 1)
    return text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"", b"", b"", b"\xff", b"\x00", b" {}"]))


@pytest.fixture(scope="module")
def app(library_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("built")
    program = load_program(library_files[0])
    state, _ = validate(program, load_raw_state(library_files[1]))
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, state))
    service = Service(LocalDecisionPoint(Embedded(folder)), system="library")
    return application(AppSettings(services={"": service}, base="http://pdp"))


def merged(body: dict[str, Any], item: Any) -> dict[str, Any]:
    return {**body, **item} if isinstance(item, dict) else {}


def is_granted(question: Any) -> bool:
    """Whether a question that was allowed may have been: by what a strict reader sees in it."""
    user, action, entity = question["subject"]["id"], question["action"]["name"], question["resource"]["id"]
    if question["resource"]["type"] != "record":
        return True  # The rest of the library is not what is looked at here.
    return (user, action, entity) in GRANTED


def ask(app: Any, path: str, body: bytes) -> None:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://pdp") as client:
            return await client.post(path, content=body, headers={"Content-Type": "application/json"})

    answer = asyncio.run(send())
    assert answer.status_code in (200, 400, 501), (answer.status_code, answer.text)
    if answer.status_code != 200:
        return
    request, report = json.loads(body), answer.json()
    if report.get("decision") is True:
        assert is_granted(request)
    if "evaluations" in report:
        for item, evaluation in zip(request["evaluations"], report["evaluations"], strict=False):
            assert evaluation["decision"] is not True or is_granted(merged(request, item))


quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=4_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@quick
@example(path=PATHS[4], body=json.dumps({**ASKED, "action": None}).encode())
@given(path=st.sampled_from(PATHS), body=st.one_of(bodies(), st.binary(max_size=60)))
def test_no_body_is_more_than_it_is(app: Any, path: str, body: bytes) -> None:
    ask(app, path, body)


@pytest.mark.long
def test_no_body_of_a_minute_is_more_than_it_is(app: Any) -> None:
    ends = time.monotonic() + 60

    @thorough
    @given(path=st.sampled_from(PATHS), body=bodies())
    def spoilt(path: str, body: bytes) -> None:
        if time.monotonic() < ends:
            ask(app, path, body)

    spoilt()
