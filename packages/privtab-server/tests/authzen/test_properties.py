"""Properties of subjects, resources, objects and actions, over the wire: declared ones are attributes, others are ignored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from privtab import Embedded
from privtab.base import Entity, SourceFile
from privtab.bundle import state_bundle
from privtab.engines import Index
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import AttributeRow, Grant, State, index_document
from privtab_server.authzen.app import AppSettings, application
from privtab_server.authzen.points import Directory, LocalDecisionPoint
from privtab_server.authzen.service import Service

POLICY = """
privtab: 1
system: records
version: "1"
entities: {folder: {record: }}
privileges: [READ]
semantics: {inheritance: down}
attributes:
  user: {department: {text: true, from: request}}
  entity: {department: {text: true, on: [record], from: request}}
  request: {mfa: bool}
tables:
  record:
    view: READ (record) and user.department = entity.department
    edit: can view (record) and request.mfa
    merge: {with: {other: record}, requires: can view (record) and can view (other)}
"""
EVALUATION = "/access/v1/evaluation"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("records")
    (folder / "records.yaml").write_text(POLICY, encoding="utf-8")
    program = load_program(folder / "records.yaml")
    grant = Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("folder", "f"))
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, State(grants=(grant,))))
    return application(
        AppSettings(services={"": Service(LocalDecisionPoint(Embedded(folder)), system="records")}, base="http://pdp")
    )


def post(app: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://pdp") as client:
            return await client.post(path, json=body)

    answer = asyncio.run(send())
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def body(operation: str, mine: Any, theirs: Any, **more: Any) -> dict[str, Any]:
    return {
        "subject": {"type": "user", "id": "ann", "properties": {"department": mine, "groups": 3, "shoe": 38}},
        "action": {"name": operation},
        "resource": {"type": "record", "id": "f/1", "properties": {"department": theirs, "status": "open"}},
    } | more


def test_declared_properties_decide_and_others_are_ignored(app: Any) -> None:
    assert post(app, EVALUATION, body("view", "hr", "hr"))["decision"] is True
    assert post(app, EVALUATION, body("view", "hr", "it"))["decision"] is False
    without = body("view", "hr", "hr")
    del without["resource"]["properties"]
    assert post(app, EVALUATION, without)["decision"] is False


def test_the_request_has_attributes_in_its_context_or_its_action(app: Any) -> None:
    assert post(app, EVALUATION, body("edit", "hr", "hr"))["decision"] is False
    assert post(app, EVALUATION, body("edit", "hr", "hr", context={"mfa": True}))["decision"] is True
    with_mfa = {"name": "edit", "properties": {"mfa": True, "color": "red"}}
    assert post(app, EVALUATION, body("edit", "hr", "hr", action=with_mfa))["decision"] is True
    differing = post(app, EVALUATION, body("edit", "hr", "hr", action=with_mfa, context={"mfa": False}))
    assert differing["decision"] is False
    assert "action.properties.mfa and context.mfa differ" in json.dumps(differing)


def test_objects_have_properties_of_their_own(app: Any) -> None:
    other = {"type": "record", "id": "f/2", "properties": {"department": "hr"}}
    assert post(app, EVALUATION, body("merge", "hr", "hr", context={"with": {"other": other}}))["decision"] is True
    del other["properties"]
    assert post(app, EVALUATION, body("merge", "hr", "hr", context={"with": {"other": other}}))["decision"] is False


@pytest.mark.parametrize("value", [3, None, ["hr"], True])
def test_a_value_of_a_wrong_type_is_a_denial_with_its_error(app: Any, value: object) -> None:
    answer = post(app, EVALUATION, body("view", value, value))
    assert answer["decision"] is False
    assert "the attribute `department` of the user must be text" in json.dumps(answer)


def test_searches_use_the_properties_of_the_subject_and_of_the_resource(app: Any) -> None:
    request = body("view", "hr", "hr")
    del request["action"]
    found = post(app, "/access/v1/search/action", request | {"context": {"mfa": True}})
    assert [result["name"] for result in found["results"]] == ["edit", "view"]
    found = post(app, "/access/v1/search/action", request)
    assert [result["name"] for result in found["results"]] == ["view"]


def test_searches_know_what_only_attributes_name() -> None:
    text = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {table: }}
privileges: [SELECT]
attributes: {user: {rank: {integer: [0, 9]}}, entity: {hidden: bool}}
tables: {table: {read: user.rank > 3 and entity.hidden = false, list: SELECT (table)}}
"""
    program = load_program(SourceFile.of("lake.yaml", text))
    rows = (
        AttributeRow(user="ann", attribute="rank", value="4"),
        AttributeRow(entity=Entity("table", "c/t"), attribute="hidden", value="false"),
    )
    found = Directory(policy_artifacts(program).program, Index(index_document(program, State(attributes=rows))))
    assert found.users == ("ann",)
    assert (found.paths("table"), found.paths("catalog")) == (("c/t",), ("c",))
