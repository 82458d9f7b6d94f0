"""The reference meaning, sentence by sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference, evaluate
from privtab.state.nodes import Assignment, Grant, State

BASE = """
privtab: 1
system: shop
version: "1"
entities: {region: {shop: {shelf:}, user:, group:, role:}}
privileges: {READ: {on: [region, shop, shelf]}, WRITE: {on: [region, shop, shelf]}, OLD: {alias_of: READ}}
sets: {ALL: [READ, WRITE]}
"""
ROWS = """
tables:
  shelf:
    look: READ (shelf)
    fill: {requires: READ + WRITE (shelf), grants: ALL (shelf)}
    list: {requires: READ (shop), each: READ (shelf)}
    move: {with: {to: shelf}, requires: WRITE (shelf) and WRITE (to) and (WRITE (shop) when overnight)}
  user: {get: self}
  group: {get: member (group)}
  role: {get: holds (role)}
"""


def program(tmp_path: Path, semantics: str, more: str = "") -> Program:
    path = tmp_path / "shop.yaml"
    path.write_text(f"{BASE}semantics: {{{semantics}}}\n{more}{ROWS}")
    return pipeline.load_program(path)


def grant(grantee: str, privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(
        grantee=grantee,
        effect="deny" if effect == "deny" else "allow",
        privilege=privilege,
        entity=Entity.parse(entity),
    )


def look(user: str = "ann", shelf: str = "r/s/x", action: str = "look") -> Request:
    return Request(user=user, action=action, resource=Entity("shelf", shelf))


@pytest.mark.parametrize("grantee", ["user:ann", "group:hr", "role:clerk", "role:boss"])
@pytest.mark.parametrize("privilege", ["READ", "OLD", "ALL"])
def test_a_grant_reaches_through_groups_roles_aliases_and_sets(tmp_path: Path, grantee: str, privilege: str) -> None:
    state = State(
        grants=(grant(grantee, privilege, "shelf:r/s/x"),),
        memberships=(("ann", "hr"),),
        assignments=(Assignment(principal="user:ann", role="clerk"), Assignment(principal="group:hr", role="boss")),
    )
    shop = Reference(program(tmp_path, "inheritance: none"), state)
    assert shop.decide(look()).allowed
    assert not shop.decide(look(shelf="r/s/y")).allowed
    assert not shop.decide(look(user="bob")).allowed


def test_inheritance_goes_down_and_only_where_it_is_enabled(tmp_path: Path) -> None:
    state = State(grants=(grant("user:ann", "READ", "region:r"),))
    assert evaluate(program(tmp_path, "inheritance: down"), state, look()).allowed
    assert not evaluate(program(tmp_path, "inheritance: none"), state, look()).allowed
    upwards = State(grants=(grant("user:ann", "READ", "shelf:r/s/x"),))
    listing = Request(user="ann", action="list", resource=Entity("shelf", "r/s"))
    assert not evaluate(program(tmp_path, "inheritance: down"), upwards, listing).allowed


@pytest.mark.parametrize("denied_at", ["region:r", "shop:r/s", "shelf:r/s/x"])
@pytest.mark.parametrize("allowed_at", ["region:r", "shop:r/s", "shelf:r/s/x"])
def test_a_denial_wins_wherever_it_stands_on_the_path(tmp_path: Path, denied_at: str, allowed_at: str) -> None:
    shop = program(tmp_path, "inheritance: down, deny: overrides")
    rows = (grant("user:ann", "READ", allowed_at), grant("group:hr", "READ", denied_at, "deny"))
    decision = evaluate(shop, State(grants=rows, memberships=(("ann", "hr"),)), look())
    assert not decision.allowed
    assert decision.missing == ((f"deny READ ({denied_at}) to group:hr",),)
    assert evaluate(shop, State(grants=rows), look()).allowed  # the denial is not theirs


def test_a_denial_touches_its_own_privilege_alone(tmp_path: Path) -> None:
    shop = program(tmp_path, "inheritance: down, deny: overrides")
    rows = (grant("user:ann", "ALL", "shop:r/s"), grant("user:ann", "WRITE", "shelf:r/s/x", "deny"))
    assert evaluate(shop, State(grants=rows), look()).allowed
    assert not evaluate(shop, State(grants=rows), look(action="fill")).allowed


def test_an_owner_has_what_owners_hold_whatever_is_denied(tmp_path: Path) -> None:
    rows = State(
        owners=((Entity.parse("shop:r/s"), "user:ann"),), grants=(grant("user:ann", "READ", "region:r", "deny"),)
    )
    owner = "owner: {kinds: [user], holds: ALL}"
    assert evaluate(program(tmp_path, f"inheritance: down, deny: overrides, {owner}"), rows, look()).allowed
    assert not evaluate(program(tmp_path, f"inheritance: none, deny: overrides, {owner}"), rows, look()).allowed
    assert not evaluate(
        program(tmp_path, "inheritance: down, deny: overrides, owner: {kinds: [user]}"), rows, look()
    ).allowed


def test_a_scope_holds_inside_and_not_beside(tmp_path: Path) -> None:
    shop = program(tmp_path, "inheritance: down")
    assignment = Assignment(principal="user:ann", role="clerk", scope=Entity.parse("shop:r/s"))
    state = State(assignments=(assignment,), grants=(grant("role:clerk", "READ", "region:r"),))
    decision = evaluate(shop, state, look())
    assert decision.allowed
    assert decision.context["reasons"] == [{"atom": "READ (shelf:r/s/x)", "on": "region:r", "through": "role:clerk"}]
    assert not evaluate(shop, state, look(shelf="r/t/x")).allowed


def test_a_declared_role_gives_its_grants_within_its_scope(tmp_path: Path) -> None:
    roles = "roles: {keeper: {scope: shop, grants: {shelf: [READ]}}}\n"
    shop = program(tmp_path, "inheritance: none", roles)
    state = State(assignments=(Assignment(principal="user:ann", role="keeper", scope=Entity.parse("shop:r/s")),))
    assert evaluate(shop, state, look()).allowed
    assert not evaluate(shop, state, look(shelf="r/t/x")).allowed
    assert not evaluate(shop, state, look(action="fill")).allowed


def test_self_member_and_holds_name_the_caller_their_groups_and_their_roles(tmp_path: Path) -> None:
    state = State(memberships=(("a/b", "hr"),), assignments=(Assignment(principal="group:hr", role="c%"),))
    shop = Reference(program(tmp_path, "inheritance: none"), state)

    def get(entity: str) -> bool:
        return shop.decide(Request(user="a/b", action="get", resource=Entity.parse(entity))).allowed

    assert get("user:r/a%2Fb")
    assert not get("user:r/ann")
    assert get("group:r/hr")
    assert not get("group:r/it")
    assert get("role:r/c%25")
    assert not get("role:r/d")


def test_a_listing_answers_for_the_call_and_for_the_item(tmp_path: Path) -> None:
    shop = program(tmp_path, "inheritance: none")
    state = State(grants=(grant("user:ann", "READ", "shop:r/s"), grant("user:ann", "READ", "shelf:r/s/x")))

    def listed(path: str) -> bool:
        return evaluate(shop, state, Request(user="ann", action="list", resource=Entity("shelf", path))).allowed

    assert listed("r/s")
    assert listed("r/s/x")
    assert not listed("r/s/y")
    assert not listed("r/t")
    assert not listed("r/t/x")


def test_a_flag_adds_a_requirement_and_an_object_counts_for_itself(tmp_path: Path) -> None:
    shop = program(tmp_path, "inheritance: none")
    rows = (grant("user:ann", "WRITE", "shelf:r/s/x"), grant("user:ann", "WRITE", "shelf:r/t/y"))

    def move(to: str, flags: frozenset[str] = frozenset()) -> bool:
        request = Request(
            user="ann", action="move", resource=Entity("shelf", "r/s/x"), with_={"to": Entity.parse(to)}, flags=flags
        )
        return evaluate(shop, State(grants=rows), request).allowed

    assert move("shelf:r/t/y")
    assert not move("shelf:r/t/z")
    assert not move("shelf:r/t/y", frozenset({"overnight"}))
    with pytest.raises(InvalidRequest, match="must be of type shelf"):
        move("shop:r/t")


def test_only_an_allow_lists_effects(tmp_path: Path) -> None:
    shop = program(tmp_path, "inheritance: none")
    state = State(grants=(grant("user:ann", "ALL", "shelf:r/s/x"),))
    assert evaluate(shop, state, look(action="fill")).effects == ("grant ALL (shelf:r/s/x)",)
    assert evaluate(shop, state, look(action="fill", shelf="r/s/y")).effects == ()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (look(action="lok"), "did you mean `look`"),
        (Request(user="ann", action="look", resource=Entity("shelv", "r/s/x")), "did you mean `shelf`"),
        (look(shelf="r/s"), "wrong depth"),
        (look(shelf="r/s/x/y"), "wrong depth"),
        (look(shelf="r//x"), "malformed path"),
        (look(shelf="r/s/%41"), "malformed path"),
        (look(action="move"), "needs context.with.to"),
    ],
)
def test_unknown_names_make_a_request_invalid(tmp_path: Path, request_: Request, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        evaluate(program(tmp_path, "inheritance: none"), State(), request_)


def test_a_call_that_names_no_item_is_explained_by_what_can_hold_there(tmp_path: Path) -> None:
    """Below a privilege on the top lies one on the item, which is weaker, and never held while no item is named."""
    path = tmp_path / "small.yaml"
    path.write_text(
        "privtab: 1\nsystem: small\nversion: '1'\nentities: {top: {low: }}\nprivileges: [READ]\n"
        "semantics: {inheritance: down}\n"
        "tables: {low: {list: {requires: READ (top) or READ (low), each: READ (low)}}}\n"
    )
    program = pipeline.load_program(path)
    request = Request(user="ann", action="list", resource=Entity("low", "t"))
    state = State(grants=(Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("top", "t")),))
    assert evaluate(program, state, request).context["reasons"][0]["atom"] == "READ (top:t)"
    assert evaluate(program, State(), request).context["missing"] == [["READ (top:t)"]]
