"""Asking: faults at their lines, by both engines, which must agree; filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from shop_policy import POLICY, Reads

from privtab.base import Decision, Request
from privtab.state import State
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.prove import observe
from privtab_testing.scenarios.run import Engine, OpaEngine, ReferenceEngine, failures, matching, opa

TEXT = """\
state:
  grants: [{grantee: "user:ann", effect: allow, privilege: READ, entity: "store:s"}]
cases:
  - {user: ann, action: open, resource: "store:s", decision: allow, reason: ["READ (store:s) through user:ann"], tags: [doors]}
  - {user: bob, action: open, resource: "store:s", decision: deny, missing: [[READ (store:s)]]}
  - {user: self, action: get, resource: "user:s/self", decision: allow}
needs:
  - {ask: read item:s/a/x, by: [[READ (item:s/a/x)], ["owner (shelf:s/a)"], [owner (item:s/a/x)]], effects: []}
  - {ask: create shelf:s/a, by: [[WRITE (store:s)]], effects: ["grant ALL ({resource})", "become owner ({resource})"]}
walkthroughs:
  - name: a shelf
    state: {grants: [{grantee: "user:ann", effect: allow, privilege: WRITE, entity: "store:s"}]}
    steps:
      - {user: ann, action: create, resource: "shelf:s/a", decision: allow, effects: ["grant ALL (shelf:s/a)", "become owner (shelf:s/a)"]}
      - {user: ann, action: read, resource: "item:s/a/x", decision: allow}
"""


@pytest.fixture
def plan(reads: Reads) -> CasePlan:
    return reads(TEXT)


@pytest.fixture
def server(plan: CasePlan) -> Iterator[OpaEngine]:
    with opa(plan.program) as engine:
        yield engine


def test_both_engines_answer_every_kind_of_case_alike(plan: CasePlan, server: OpaEngine) -> None:
    assert list(failures(plan, plan.cases, [ReferenceEngine(plan.program), server])) == []
    assert list(failures(plan, plan.cases, [server])) == []


def test_a_planted_fault_is_found_at_its_row_by_both(reads: Reads) -> None:
    plan = reads(TEXT, POLICY.replace("READ (item) or owner (shelf, item)", "READ (item) or owner (item)"))
    names = ["read item:s/a/x with owner (shelf:s/a)", "a shelf, step 2: ann read"]
    with opa(plan.program) as server:
        reference = ReferenceEngine(plan.program)
        choices: list[list[Engine]] = [[reference], [server], [reference, server]]
        for engines in choices:
            found = list(failures(plan, plan.cases, engines))
            assert [failure.case.name for failure in found][:1] == names[:1]
            rule = plan.program.rules["item", "read"]
            assert POLICY.splitlines()[rule.span.line - 1].strip().startswith("read:")
            assert found[0].case.span.line == 9
            assert found[0].decision.missing


class Contrary:
    """An engine that says no to all."""

    name = "contrary"
    knows_effects = True

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        del state, requests
        return [Decision(allowed=False, context={"rule": "none"} if is_explained else {}) for is_explained in explain]


def test_engines_that_differ_are_a_failure_of_its_own_kind(plan: CasePlan) -> None:
    found = list(failures(plan, plan.cases[:1], [ReferenceEngine(plan.program), Contrary()]))
    assert [(f.fault, f.engine) for f in found] == [("engines", "contrary")]
    assert found[0].expected == "reference: allow, none, by READ (store:s) through user:ann at store:s"


def test_filters(plan: CasePlan) -> None:
    def names(pattern: str) -> list[str]:
        return [case.name for case in matching(plan.cases, pattern)]

    assert names("doors") == ["ann open store:s"]
    assert names("OPEN STORE") == ["ann open store:s", "bob open store:s"]
    assert names("create shelf:*") == names("create")
    assert len(names("create")) > 3
    assert names("shelf, step ?*") == []
    assert names("a shelf, step ?*") == ["a shelf, step 1: ann create", "a shelf, step 2: ann read"]
    assert names("nothing like it") == []


def test_a_role_that_is_not_held_denies_by_every_engine_and_in_proofs(reads: Reads) -> None:
    policy = POLICY.replace("semantics: {", "semantics: {active_roles: request, ", 1)
    text = (
        TEXT.partition("cases:")[0] + "cases: [{user: ann, action: open, resource: 'store:s', ROLES decision: allow}]"
    )
    plan = reads(text.replace("ROLES", "active_roles: [keeper],"), policy)
    with opa(plan.program) as server:
        choices: list[list[Engine]] = [[ReferenceEngine(plan.program)], [server]]
        assert [[f.got for f in failures(plan, plan.cases, engines)] for engines in choices] == [["deny"], ["deny"]]
    [observed] = observe(plan, plan.cases).values()
    assert observed.allowed == 0
    plan = reads(text.replace("ROLES", ""), policy)
    assert list(failures(plan, plan.cases, [ReferenceEngine(plan.program)])) == []
    [observed] = observe(plan, plan.cases).values()
    assert observed.allowed == 1
