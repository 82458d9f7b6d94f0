"""Every tool on a policy with each feature: what is declared as unsupported is refused, and everything else is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privtab.base.errors import PrivtabError
from privtab.base.request import Entity, Request
from privtab.engines.batches import Batches
from privtab.ir.nodes import Has, Program
from privtab.ir.support import UNSUPPORTED, Feature, Tool
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.state.located import locations
from privtab.state.nodes import Grant, Placement, State
from privtab.state.shards import shards
from privtab_analysis.diff import diff
from privtab_analysis.paths import ReachableRights
from privtab_analysis.permissions import what_can
from privtab_analysis.principals import who_can
from privtab_analysis.rights import target_of
from privtab_analysis.state_diff import state_diff
from privtab_analysis.turns import remedies
from privtab_spark.matrix.opening import open_matrix, open_state
from privtab_spark.matrix.question import Question
from privtab_spark.packed_values import unpacked
from privtab_spark.policies import open_policy
from privtab_spark.states import prepared
from privtab_testing.conform.candidates import Candidates
from privtab_testing.scenarios import CasePlan, Subject
from privtab_testing.scenarios.callers import HeldSet
from privtab_testing.scenarios.needs import Callers
from privtab_testing.scenarios.prove import coverage, score

POLICY = """
privtab: 1
system: lake
version: '1'
entities: {{catalog: {{namespace: {{table:}}}}, group: , role: }}
privileges: [USE, READ]
types: {{namespace: {nested}}}
semantics: {{inheritance: down{hierarchy}}}
{attributes}
tables:
  namespace:
    open: {condition}
    create: USE (catalog)
"""


def policy(feature: Feature | None) -> str:
    return POLICY.format(
        nested=TYPES.get(feature, "{}"),
        hierarchy=HIERARCHY.get(feature, ""),
        condition=CONDITIONS.get(feature, "USE (namespace)"),
        attributes=ATTRIBUTES.get(feature, ""),
    )


TYPES: dict[Feature | None, str] = {Feature.NESTED: "{nested: true}", Feature.FLAT: "{flat: true}"}
HIERARCHY: dict[Feature | None, str] = {
    Feature.BELOW: ", hierarchy: [groups]",
    Feature.ACTIVE_WITH_HIERARCHY: ", hierarchy: [roles], active_roles: request",
    Feature.CREATOR_BY_ROLE: ", active_roles: request, owner: {kinds: [role], creator: active_role}",
}
CONDITIONS: dict[Feature | None, str] = {
    Feature.BELOW: "USE (namespace or below)",
    Feature.ATTRIBUTES: "USE (namespace) and user.mfa",
    Feature.GIVEN: "USE (namespace) and request.mfa",
}
ATTRIBUTES: dict[Feature | None, str] = {
    Feature.ATTRIBUTES: "attributes: {user: {mfa: bool}}",
    Feature.GIVEN: "attributes: {request: {mfa: bool}}",
}
STATE = State(
    grants=(Grant(grantee="user:ann", effect="allow", privilege="USE", entity=Entity("namespace", "c/a")),),
    memberships=(("ann", "staff"),),
)
PLACED = State(
    grants=(Grant(grantee="user:ann", effect="allow", privilege="USE", entity=Entity("namespace", "a")),),
    memberships=(("ann", "staff"),),
    entities=(Placement(entity=Entity("namespace", "a"), parent=Entity("catalog", "c")),),
)
OPEN = Request(user="ben", action="open", resource=Entity("namespace", "c/a"))


def plan(program: Program) -> CasePlan:
    return CasePlan(subject=Subject(policy=Path("lake.yaml")), program=program, rules=program.rules)


def state_of(program: Program) -> State:
    return PLACED if program.flat else STATE


def held(program: Program) -> HeldSet:
    return frozenset({Has(privilege="USE", target=target_of(str(request_of(program).resource)))})


def request_of(program: Program) -> Request:
    return replace(OPEN, resource=Entity("namespace", "a")) if program.flat else OPEN


def decided_by_executors(program: Program, reference: Reference) -> None:
    """The policy and a state as an executor gets them, asked as an executor does."""
    state, request = state_of(program), request_of(program)
    packed = prepared(open_policy(program), state, None)  # type: ignore[arg-type]  # rows need no session
    answers = Batches.of(*unpacked(packed.content)).decide_columns(
        [request.user, "ann"], [request.resource.id] * 2, action=request.action, type=request.resource.type
    )
    asked = [reference.decide(replace(request, user=user)).allowed for user in (request.user, "ann")]
    assert answers.allowed.tolist() == asked
    assert not answers.reasons.any()


def entitlements(program: Program, reference: Reference) -> None:
    """The matrix of a state, and who opens the resource by it."""
    policy, state = open_policy(program), state_of(program)
    matrix = open_matrix(policy, open_state(policy, state), Question(operations=frozenset({"open"})))
    rows = [row for batch in matrix.of([str(request_of(program).resource)]) for row in batch.to_pylist()]
    allowed = {row["user"] for row in rows if row["operation"] == "open"}
    asked = {user for user in ("ann", "ben") if reference.decide(replace(request_of(program), user=user)).allowed}
    assert allowed == asked


ASK: dict[Tool, list[Callable[[Program, Reference], Any]]] = {
    Tool.CONFORM: [lambda p, _: [list(Candidates(p).settings(rule)) for rule in p.rules.values()]],
    Tool.COVERAGE: [lambda p, _: coverage(plan(p), {})],
    Tool.DIFF: [lambda p, _: diff(p, p)],
    Tool.MUTATION: [lambda p, _: score(plan(p), {})],
    Tool.NEEDS: [lambda p, _: list(Callers(p, request_of(p), (held(p),), locations(p, state_of(p))).all())],
    Tool.PATHS: [lambda _, r: ReachableRights(r, state_of(r.program), "ann")],
    Tool.SHARDS: [lambda p, _: shards(p, state_of(p))],
    Tool.SPARK: [decided_by_executors, entitlements],
    # What these refuse is tested with a Spark session, in packages/privtab-spark/tests.
    Tool.SPARK_BUILD: [lambda p, _: Tool.SPARK_BUILD.check(p)],
    Tool.STATE_DIFF: [lambda p, _: state_diff(p, state_of(p), State())],
    Tool.TURNS: [lambda _, r: remedies(r, state_of(r.program), request_of(r.program))],
    Tool.WHAT_CAN: [lambda _, r: what_can(r, state_of(r.program), "ann")],
    Tool.WHO_CAN: [lambda _, r: who_can(r, state_of(r.program), request_of(r.program)).users],
    Tool.WHO_CAN_PRINCIPALS: [lambda _, r: who_can(r, state_of(r.program), request_of(r.program)).principals()],
}
NEEDS_WHO_CAN = {Tool.WHO_CAN_PRINCIPALS: Tool.WHO_CAN}
"""Tools that are reached through others, which refuse first."""


def test_every_tool_is_tried() -> None:
    assert set(ASK) == set(Tool)
    assert set(UNSUPPORTED) == set(Feature)


@pytest.mark.parametrize("feature", [None, *Feature])
def test_a_tool_refuses_what_is_declared_and_nothing_else(feature: Feature | None, tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(policy(feature), encoding="utf-8")
    program = load_program(path)
    reference = Reference(program, state_of(program))
    features = {feature, *([Feature.ATTRIBUTES] if feature is Feature.GIVEN else [])}
    for tool, questions in ASK.items():
        tools = {tool, NEEDS_WHO_CAN.get(tool)}
        declared = {f: UNSUPPORTED[f][t] for f in features if f for t in tools if t and t in UNSUPPORTED[f]}
        for ask in questions:
            if not declared:
                ask(program, reference)
                continue
            with pytest.raises(PrivtabError) as caught:
                ask(program, reference)
            ends = (
                "attributes",
                "comparisons of attributes that requests give",
                "flat ids",
                "`or below`",
                "active roles in which roles hold roles",
                "active roles as owners of what they create",
            )
            assert str(caught.value).partition(": ")[0] in {
                f"{subject} does not support policies with {end}" for subject in declared.values() for end in ends
            }
