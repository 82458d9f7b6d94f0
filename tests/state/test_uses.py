from __future__ import annotations

from privtab.ir.nodes import Program
from privtab.state.uses import Uses, uses


def test_everything_that_a_rule_asks_for_is_found(program: Program) -> None:
    assert uses(program) == Uses(
        member_types=frozenset({"lake", "group", "schema"}),
        group_membership=True,
        holds=True,
        service_admins=True,
        state_groups=True,
        request_groups=False,
    )


def test_a_policy_that_asks_for_nothing(lean: Program) -> None:
    assert uses(lean) == Uses(
        member_types=frozenset(),
        group_membership=False,
        holds=False,
        service_admins=False,
        state_groups=True,
        request_groups=False,
    )


def test_groups_may_come_with_the_request(trusting: Program) -> None:
    assert uses(trusting).request_groups
