"""The scenarios that ship: all of them pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from shop import failed

from privtab.scenarios.collect import plans
from privtab.scenarios.nodes import Plan

SHIPPED = plans([Path(__file__).parents[2] / "policy_src"])


@pytest.mark.parametrize("plan", SHIPPED, ids=lambda plan: f"{plan.subject.policy.stem}{plan.subject.chosen}")
def test_every_case_is_answered_as_it_must_be(plan: Plan) -> None:
    assert plan.cases
    assert failed(plan) == []
