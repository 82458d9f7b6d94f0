from __future__ import annotations

from dataclasses import replace

from privtab.ir.nodes import Program
from privtab.state.names import UsedParts


def test_everything_used_by_a_rule_is_found(program: Program) -> None:
    assert UsedParts.of(program) == UsedParts(
        member_types=frozenset({"lake", "group", "schema"}),
        group_membership=True,
        holds=True,
        service_admins=True,
        state_groups=True,
        request_groups=False,
    )


def test_a_policy_without_requirements(lean: Program) -> None:
    assert UsedParts.of(lean) == UsedParts(
        member_types=frozenset(),
        group_membership=False,
        holds=False,
        service_admins=False,
        state_groups=True,
        request_groups=False,
    )


def test_groups_may_come_with_the_request(trusting: Program) -> None:
    assert UsedParts.of(trusting).request_groups


def test_names_without_rules_may_use_anything(lean: Program) -> None:
    # What a compiled policy tells of its names: who is in which group must not be lost from an index that is made with it.
    found = UsedParts.of(replace(lean, rules={}))
    assert found.member_types == frozenset(lean.entities)
    assert found.holds
    assert found.group_membership
    assert found.service_admins
