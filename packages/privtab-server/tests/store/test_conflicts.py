"""No change lets a user do what `conflicts` keeps apart, whichever row would do it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_policy import asks, grant

from privtab.pipeline import load_program
from privtab_server.errors import StoreConflict
from privtab_server.store.store import Store

POLICY = """\
privtab: 1
system: office
version: "1"
entities: {company: {payment: , invoice: }}
privileges:
  ASK: {on: [company, payment]}
  APPROVE: {on: [company, payment]}
  PAY: {on: [company, payment]}
  SEND: {on: [company, invoice]}
roles:
  clerk: {scope: company, grants: {company: [ASK]}}
  manager: {scope: company, grants: {company: [APPROVE]}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}, hierarchy: [groups, roles]}
tables:
  company: {manage: service admin}
  payment:
    ask: {requires: ASK (payment), becomes: owner}
    approve: APPROVE (payment)
    pay: PAY (payment) or owner (payment)
  invoice: {send: SEND (invoice)}
conflicts:
  - {operations: [payment/ask, payment/approve], why: Two people see every payment.}
  - {operations: [payment/pay, invoice/send]}
"""
BY = asks("root", "manage", "company:a")
CLERK = {"principal": "user:eve", "role": "clerk", "scope": "company:a"}
MANAGER = {**CLERK, "role": "manager"}


@pytest.fixture
def office(tmp_path: Path) -> Store:
    policy = tmp_path / "office.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    store = Store.create(str(tmp_path / "office.db"), load_program(policy), administrators=["root"])
    store.change(BY, add={"assignments": [CLERK]})
    return store


@pytest.mark.parametrize(
    "rows",
    [
        {"assignments": [MANAGER]},
        {"grants": [grant("user:eve", "APPROVE", "company:a")]},
        {"grants": [grant("user:eve", "APPROVE", "payment:a/7")]},
        {"grants": [grant("role:clerk", "APPROVE", "company:a")]},
        {"assignments": [{**MANAGER, "principal": "group:g"}], "memberships": [{"user": "eve", "group": "g"}]},
        {"assignments": [{**MANAGER, "principal": "role:clerk"}]},
        {"assignments": [{**MANAGER, "from": "2090-01-01T00:00:00Z"}]},
    ],
    ids=["role", "grant", "one payment", "to the role", "group", "role of a role", "later"],
)
def test_whatever_row_would_join_two_duties_is_refused(office: Store, rows: dict[str, list[dict[str, str]]]) -> None:
    head = office.head()
    with pytest.raises(StoreConflict, match=r"user:eve could do .*payment/ask.*payment/approve.*Two people see every"):
        office.change(BY, add=rows)
    with pytest.raises(StoreConflict, match="role:clerk"):
        office.propose(BY, add=rows)
    assert office.head() == head


def test_a_membership_is_refused_if_the_group_has_the_other_duty(office: Store) -> None:
    office.change(BY, add={"assignments": [{**MANAGER, "principal": "group:all"}]})
    office.change(asks("root", "manage", "company:a"), add={"memberships": [{"user": "group:g", "group": "all"}]})
    with pytest.raises(StoreConflict, match="role:clerk` and `role:manager"):
        office.change(BY, add={"memberships": [{"user": "eve", "group": "g"}]})
    office.change(BY, add={"memberships": [{"user": "ann", "group": "g"}]})


def test_privileges_at_other_times_or_places_or_denied_are_no_conflict(office: Store) -> None:
    office.change(BY, add={"assignments": [{**MANAGER, "until": "2020-01-01T00:00:00Z"}]})
    other = asks("root", "manage", "company:b")
    office.change(other, add={"assignments": [{**MANAGER, "scope": "company:b"}]})
    denied = {**grant("user:eve", "APPROVE", "company:a"), "effect": "deny"}
    office.change(BY, add={"grants": [denied]})
    office.change(BY, add={"assignments": [MANAGER]})
    with pytest.raises(StoreConflict, match="payment/approve"):
        office.change(BY, remove={"grants": [denied]})


def test_operations_of_several_types_count_within_what_contains_them(office: Store) -> None:
    office.change(BY, add={"grants": [grant("user:ann", "PAY", "payment:a/1")]})
    office.change(asks("root", "manage", "company:b"), add={"grants": [grant("user:ann", "SEND", "company:b")]})
    with pytest.raises(StoreConflict, match=r"payment/pay` and `invoice/send` in company:a"):
        office.change(BY, add={"grants": [grant("user:ann", "SEND", "invoice:a/9")]})


def test_ownership_by_an_effect_counts_too(office: Store) -> None:
    office.change(BY, add={"grants": [grant("user:eve", "SEND", "company:a")]})
    with pytest.raises(StoreConflict, match="payment/pay"):
        office.perform(asks("eve", "ask", "payment:a/1"))


def test_existing_conflicts_refuse_no_other_change(tmp_path: Path, office: Store) -> None:
    loaded = Store.create(str(tmp_path / "loaded.db"), office.program, administrators=["root"])
    loaded.load({"assignments": [CLERK, MANAGER]}, actor="setup")
    loaded.change(BY, add={"grants": [grant("user:eve", "PAY", "company:a")]})
