"""A store reads what every user has for each decision, and separates duties of everyone."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_policy import asks, grant

from privtab.base import AccessDenied
from privtab.pipeline import load_program
from privtab_server.errors import StoreConflict
from privtab_server.store.store import Store

POLICY = """\
privtab: 1
system: office
version: "1"
entities: {company: {payment: }}
privileges: [ASK, APPROVE]
semantics: {inheritance: down, deny: overrides, hierarchy: [groups, roles], everyone: all}
tables:
  company: {manage: service admin}
  payment: {ask: ASK (payment), approve: APPROVE (payment)}
conflicts:
  - {operations: [payment/ask, payment/approve], why: Two people see every payment.}
"""
BY = asks("root", "manage", "company:a")


@pytest.fixture
def office(tmp_path: Path) -> Store:
    policy = tmp_path / "office.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    return Store.create(str(tmp_path / "office.db"), load_program(policy), administrators=["root"])


def allowed(store: Store, user: str, action: str) -> bool:
    try:
        store.perform(asks(user, action, "payment:a/7"))
    except AccessDenied:
        return False
    return True


def test_grants_and_denials_to_everyone_count(office: Store) -> None:
    members = [{"user": "eve", "group": "staff"}, {"user": "group:all", "group": "people"}]
    office.change(BY, add={"grants": [grant("group:people", "ASK", "company:a")], "memberships": members})
    assert [allowed(office, user, "ask") for user in ("eve", "a stranger")] == [True, True]
    denial = {**grant("group:all", "ASK", "payment:a/7"), "effect": "deny"}
    office.change(BY, add={"grants": [denial, grant("user:eve", "ASK", "company:a")]})
    assert [allowed(office, user, "ask") for user in ("eve", "a stranger")] == [False, False]


@pytest.mark.parametrize("grantee", ["group:all", "user:eve"])
def test_what_everyone_has_is_kept_apart_from_what_a_user_has(office: Store, grantee: str) -> None:
    first, second = ("group:all", "user:eve") if grantee == "group:all" else ("user:eve", "group:all")
    office.change(BY, add={"grants": [grant(first, "ASK", "company:a")]})
    with pytest.raises(StoreConflict, match="Two people see every payment"):
        office.change(BY, add={"grants": [grant(second, "APPROVE", "payment:a/7")]})


def test_everyone_alone_may_not_do_both(office: Store) -> None:
    with pytest.raises(StoreConflict, match="Two people see every payment"):
        office.change(BY, add={"grants": [grant("group:all", p, "company:a") for p in ("ASK", "APPROVE")]})
