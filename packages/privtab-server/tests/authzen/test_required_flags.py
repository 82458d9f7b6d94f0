"""A flag that is required, over the wire: a request that does not say it is refused, in evaluations and in searches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from required_flag_policy import POLICY

from privtab import Embedded
from privtab.base import Entity
from privtab.bundle import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import Grant, State
from privtab_server.authzen.app import AppSettings, application
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import Service

ASKED: dict[str, Any] = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "read"},
    "resource": {"type": "file", "id": "w/1"},
}
EVALUATION, EVALUATIONS = "/access/v1/evaluation", "/access/v1/evaluations"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "clinic.yaml").write_text(POLICY, encoding="utf-8")
    program = load_program(folder / "clinic.yaml")
    grant = Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("file", "w/1"))
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, State(grants=(grant,))))
    return application(
        AppSettings(services={"": Service(LocalDecisionPoint(Embedded(folder)), system="clinic")}, base="http://pdp")
    )


def post(app: Any, path: str, body: dict[str, Any]) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://pdp") as client:
            return await client.post(path, json=body)

    return asyncio.run(send())


def test_an_evaluation_that_forgets_it_is_never_an_allow(app: Any) -> None:
    forgotten = post(app, EVALUATION, ASKED)
    assert forgotten.json().get("decision") is not True
    assert "needs the flag `pii`" in json.dumps(forgotten.json())
    assert post(app, EVALUATION, ASKED | {"context": {"pii": False}}).json()["decision"] is True
    for value in (True, None, 0, "", "false"):
        answer = post(app, EVALUATION, ASKED | {"context": {"pii": value}})
        assert answer.status_code != 200 or answer.json()["decision"] is False, value


def test_each_evaluation_says_it_for_itself_or_all_together(app: Any) -> None:
    each = {**ASKED, "evaluations": [{}, {"context": {"pii": False}}, {"context": {"pii": True}}]}
    assert [evaluation["decision"] for evaluation in post(app, EVALUATIONS, each).json()["evaluations"]] == [
        False,
        True,
        False,
    ]
    together = {**ASKED, "context": {"pii": False}, "evaluations": [{}, {"context": {}}]}
    assert [evaluation["decision"] for evaluation in post(app, EVALUATIONS, together).json()["evaluations"]] == [
        True,
        False,
    ]


@pytest.mark.parametrize("kind", ["subject", "resource", "action"])
def test_a_search_that_forgets_it_finds_nothing(app: Any, kind: str) -> None:
    request = {**ASKED, kind: {key: value for key, value in ASKED[kind].items() if key == "type"}}
    if kind == "action":
        del request["action"]
    path = f"/access/v1/search/{kind}"
    forgotten = post(app, path, request)
    assert not forgotten.json().get("results")
    response = post(app, path, request | {"context": {"pii": False}})
    assert response.status_code == 200, response.text
    assert len(response.json()["results"]) == 1
    assert not post(app, path, request | {"context": {"pii": True}}).json()["results"]
