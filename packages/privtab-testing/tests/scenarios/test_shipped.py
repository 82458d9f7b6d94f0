"""The scenarios that ship: all of them pass, prove every cell and notice every fault."""

from __future__ import annotations

import pytest
from shipped_policies import FEW, by_release
from shop_policy import failed

from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.collect import plans
from privtab_testing.scenarios.prove import coverage, observe, score


@pytest.fixture(
    scope="module", params=by_release(full={*FEW, "gravitino/next", "polaris/1.8", "postgresql/15", "unitycatalog/0.7"})
)
def shipped(request: pytest.FixtureRequest) -> dict[str, CasePlan]:
    """The plans of a policy by what they are about: worked out here, since all who collect tests would have to wait."""
    found = plans([request.param])
    assert found
    return {f"{p.subject.policy.stem} {p.subject.variant} {len(p.subject.readings)}": p for p in found}


def test_every_case_is_answered_as_it_must_be(shipped: dict[str, CasePlan]) -> None:
    assert all(plan.cases for plan in shipped.values())
    assert {name: failed(plan) for name, plan in shipped.items()} == {name: [] for name in shipped}


def test_every_cell_is_proved_and_every_fault_noticed(shipped: dict[str, CasePlan]) -> None:
    for name, plan in shipped.items():
        observed = observe(plan, plan.cases)
        assert [f"{name} {cell.rule.id}: {cell.text}" for cell in coverage(plan, observed).untested] == []
        assert [f"{name} {m.original.id}: {m.text}" for m in score(plan, observed).survived] == []
