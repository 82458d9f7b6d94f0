"""The scenarios that ship: all of them pass, prove every cell and notice every fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from shop import failed

from privtab.scenarios.collect import plans
from privtab.scenarios.nodes import Plan
from privtab.scenarios.prove import coverage, observe, score

SHIPPED = plans([Path(__file__).parents[2] / "policy_src"])


each_plan = pytest.mark.parametrize(
    "plan", SHIPPED, ids=lambda plan: f"{plan.subject.policy.stem} {plan.subject.variant} {len(plan.subject.readings)}"
)


@each_plan
def test_every_case_is_answered_as_it_must_be(plan: Plan) -> None:
    assert plan.cases
    assert failed(plan) == []


@each_plan
def test_every_cell_is_proved_and_every_fault_noticed(plan: Plan) -> None:
    observed = observe(plan, plan.cases)
    assert [f"{cell.rule.id}: {cell.text}" for cell in coverage(plan, observed).untested] == []
    assert [f"{mutant.original.id}: {mutant.text}" for mutant in score(plan, observed).survived] == []
