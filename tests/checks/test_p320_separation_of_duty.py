from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def policy(rest: str, *, ask: str = "ASK (shop)", approve: str = "APPROVE (shop)", grants: str = "") -> str:
    return (
        "entities: {shop: {payment:, user:}}\nprivileges: [ASK, APPROVE]\n"
        f"tables: {{payment: {{ask: {{requires: {ask}{grants}}}, approve: {{requires: {approve}}}}}}}\n"
        "conflicts: [{operations: [payment/ask, payment/approve], why: Four eyes.}]\n" + rest
    )


def test_a_role_holds_both(only: Callable[..., Any]) -> None:
    found = only(policy("roles: {boss: {grants: {shop: [ASK, APPROVE]}}}\n"), "P320")
    assert found.message == "the role `boss` holds `payment/ask` and `payment/approve`"
    assert found.help == "require something else in one of them, or grant less: Four eyes"
    assert found.under == "payment/ask"


def test_a_role_holds_both_in_its_scope(only: Callable[..., Any]) -> None:
    text = policy(
        "roles: {boss: {scope: payment, grants: {payment: [ASK, APPROVE]}}}\n",
        ask="ASK (payment)",
        approve="APPROVE (payment)",
    )
    assert only(text, "P320").message == "the role `boss` holds `payment/ask` and `payment/approve`"


def test_by_inheritance_and_past_the_gate(only: Callable[..., Any]) -> None:
    text = policy(
        "semantics: {inheritance: down, gate: member (shop)}\nroles: {boss: {grants: {shop: [ASK, APPROVE]}}}\n",
        ask="ASK (payment)",
        approve="APPROVE (payment)",
    )
    assert only(text, "P320").message == "the role `boss` holds `payment/ask` and `payment/approve`"


def test_one_privilege_is_enough(only: Callable[..., Any]) -> None:
    found = only(policy("", approve="ASK/APPROVE (shop)"), "P320")
    assert found.message == "the privilege `ASK` alone is enough for `payment/ask` and `payment/approve`"


def test_one_set_is_enough(only: Callable[..., Any]) -> None:
    found = only(policy("sets: {ALL: [ASK, APPROVE]}\n"), "P320")
    assert found.message == "the set `ALL` is enough for `payment/ask` and `payment/approve`"


def test_an_owner_does_both(only: Callable[..., Any]) -> None:
    text = policy("semantics: {owner: {holds: ASK}}\n", ask="ASK (payment)", approve="owner (payment)")
    assert only(text, "P320").message == "the owner of a `payment` may do `payment/ask` and `payment/approve`"


def test_asking_gives_what_approving_takes(only: Callable[..., Any]) -> None:
    text = policy("", approve="APPROVE (payment)", grants=", grants: APPROVE (payment)")
    found = only(text, "P320")
    assert found.message == "a caller of `ask` gets what is required for `payment/ask` and `payment/approve`"


def test_two_of_three_are_allowed_where_it_says_so(only: Callable[..., Any], codes: Callable[[str], list[str]]) -> None:
    text = """\
    entities: {shop: {payment:}}
    privileges: [ASK, APPROVE, PAY]
    tables: {payment: {ask: ASK (shop), approve: APPROVE (shop), pay: PAY (shop)}}
    conflicts: [{operations: [payment/ask, payment/approve, payment/pay], at_most: 2}]
    roles: {boss: {grants: {shop: [ASK, APPROVE%s]}}}
    """
    found = only(text % ", PAY", "P320")
    assert found.message.endswith("`payment/ask`, `payment/approve` and `payment/pay`, more than 2 of them")
    assert "P320" not in codes(text % "")


@pytest.mark.parametrize(
    "text",
    [
        policy("roles: {clerk: {grants: {shop: [ASK]}}, boss: {grants: {shop: [APPROVE]}}}\n"),
        policy("roles: {boss: {grants: {payment: [ASK, APPROVE]}}}\n"),
        policy("roles: {boss: {scope: payment, grants: {payment: [APPROVE]}}}\n", approve="APPROVE (payment)"),
        policy("roles: {boss: {grants: {shop: [ASK, APPROVE]}}}\n", approve="APPROVE (shop) and service admin"),
        policy("roles: {boss: {scope: user, grants: {shop: [ASK, APPROVE]}}}\n"),
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P320" not in codes(text)
