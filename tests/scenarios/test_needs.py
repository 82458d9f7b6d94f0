"""The callers that prove a list of ways: few, right, and enough."""

from __future__ import annotations

import pytest
from shop_policy import Reads, failed

from privtab.errors import UsageError
from privtab.scenarios.nodes import Plan


def answers(plan: Plan) -> dict[str, bool]:
    return {case.name.partition(" with ")[2]: case.expected.allowed for case in plan.cases}


def test_each_set_is_enough_each_atom_is_needed_and_nothing_else_lets_in(reads: Reads) -> None:
    plan = reads(
        "needs: [{ask: read item:s/a/x, by: [[READ (item:s/a/x)], [owner (shelf:s/a)], [owner (item:s/a/x)]]}]"
    )
    assert answers(plan) == {
        "READ (item:s/a/x)": True,
        "owner (shelf:s/a)": True,
        "owner (item:s/a/x)": True,
        "nothing": False,
        "everything but owner (item:s/a/x), owner (shelf:s/a); denied READ (item:s/a/x)": False,
    }
    assert failed(plan) == []


def test_callers_that_lack_one_atom_are_denied(reads: Reads) -> None:
    plan = reads("needs: [{ask: burn item:s/a/x, flags: [really], by: [[WRITE (item:s/a/x), OWN (item:s/a/x)]]}]")
    found = answers(plan)
    assert found["WRITE (item:s/a/x); without OWN (item:s/a/x)"] is False
    assert found["OWN (item:s/a/x); without WRITE (item:s/a/x)"] is False
    assert failed(plan) == []


def test_what_is_left_may_hold_another_listed_set(reads: Reads) -> None:
    plan = reads(
        "needs: [{ask: list shelf:s/a, by: [[READ (store:s), READ (shelf:s/a)]]}]",
    )
    lacking = [name for name in answers(plan) if "without" in name]
    # READ on the store gives it on the shelf: only a denial there takes it away.
    assert lacking == [
        "READ (store:s); denied READ (shelf:s/a); without READ (shelf:s/a)",
        "READ (shelf:s/a); without READ (store:s)",
    ]
    assert failed(plan) == []


def test_a_way_that_is_missing_from_the_list_is_found_by_who_has_everything_else(reads: Reads) -> None:
    plan = reads("needs: [{ask: read item:s/a/x, by: [[READ (item:s/a/x)], [owner (item:s/a/x)]]}]")
    assert failed(plan) == ["read item:s/a/x with everything but owner (item:s/a/x); denied READ (item:s/a/x)"]


def test_a_way_that_is_listed_and_not_there_fails(reads: Reads) -> None:
    plan = reads("needs: [{ask: open store:s, by: [[READ (store:s)], [owner (store:s)]]}]")
    assert failed(plan) == ["open store:s with owner (store:s)"]


def test_anyone_and_nobody(reads: Reads) -> None:
    policy = """\
        privtab: 1
        system: shop
        version: "1"
        entities: {store: }
        privileges: [READ]
        tables: {store: {visit: anyone, open: READ (store)}}
        """
    plan = reads("needs: [{ask: visit store:s, by: [[]]}, {ask: visit store:s, by: anyone}]", policy)
    assert answers(plan) == {"nothing": True}
    assert failed(plan) == []
    assert failed(reads("needs: [{ask: visit store:s, by: []}]", policy)) == [
        "visit store:s with nothing",
        "visit store:s with everything",
    ]


def test_who_is_the_resource_gives_it_his_name(reads: Reads) -> None:
    plan = reads("needs: [{ask: get user:s/u, by: [[self], [READ (store:s)]]}]")
    himself = next(case for case in plan.cases if case.name.endswith("with self"))
    assert himself.request.resource.id == f"s/{himself.request.user}"
    assert failed(plan) == []


def test_roles_are_held(reads: Reads) -> None:
    assert failed(reads("needs: [{ask: use role:s/r, by: [[holds (role:s/r)]]}]")) == []
    assert failed(reads("needs: [{ask: use role:s/r, by: [[READ (role:s/r)]]}]")) != []


def test_owners_own_by_what_may_own(reads: Reads) -> None:
    policy = """\
        privtab: 1
        system: shop
        version: "1"
        entities: {store: }
        privileges: [READ]
        semantics: {owner: {kinds: [KINDS]}, groups: [GROUPS]}
        tables: {store: {open: READ (store) or owner (store)}}
        """
    for kinds, groups in (("group", "state"), ("group", "request"), ("role", "state")):
        text = policy.replace("KINDS", kinds).replace("GROUPS", groups)
        plan = reads("needs: [{ask: open store:s, by: [[READ (store:s)], [owner (store:s)]]}]", text)
        assert failed(plan) == [], (kinds, groups)


def test_all_callers_are_one_state(reads: Reads) -> None:
    plan = reads(
        """\
        needs:
          - {ask: [open store:s, "list shelf:s"], by: [[READ (store:s)]]}
          - {ask: create shelf:s/a, by: [[WRITE (store:s)]], effects: ["grant ALL ({resource})", "become owner ({resource})"]}
        """
    )
    assert len(plan.worlds) == 1
    assert len({case.request.user for case in plan.cases}) == len(plan.cases)
    assert failed(plan) == []


def test_rows_that_ask_what_is_held_below_are_refused_and_others_are_not(reads: Reads) -> None:
    policy = """\
        privtab: 1
        system: shop
        version: v1
        entities: {shelf: {item:}}
        privileges: [READ]
        tables:
          shelf: {see: READ (shelf or below)}
          item: {read: READ (item)}
        """
    plan = reads("needs: [{ask: read item:a/x, by: [[READ (item:a/x)]]}]", policy)
    assert failed(plan) == []
    with pytest.raises(UsageError, match="`needs` does not support policies with `or below`"):
        reads("needs: [{ask: see shelf:a, by: [[READ (shelf:a)]]}]", policy)
