from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import generated_programs
import pytest
import worlds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seeds import seeds

from privtab import InvalidRequest, pipeline
from privtab.base import Entity, Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_analysis.entitlements import request_forms
from privtab_analysis.entitlements.universe import users
from privtab_analysis.principals import Principal, who_can

WORLDS = st.tuples(st.integers(0, 400), st.integers(0, 10_000))
EVERYONE = 146, 0
"""A world in which every user is in a group that has rights."""
STRANGER = "stranger"
FEATURES = (
    (),
    ("implies", "below", "hierarchy"),
    ("attributes",),
    ("nested", "implies", "hierarchy"),
    ("nested", "attributes"),
    ("nested", "below"),
)


@pytest.mark.slow
@settings(max_examples=16, deadline=None)
@given(WORLDS)
def test_who_can_agrees_with_one_decision_for_each_user(world: tuple[int, int]) -> None:
    check_users(world)


def check_users(world: tuple[int, int]) -> None:
    program, state, reference = generated_world(world)
    for request in worlds.requests(program, world[1], per_rule=2):
        found = who_can(reference, state, request)
        everybody = users(program, state) | set(found.users) | {*worlds.USERS, STRANGER}
        allowed = {user for user in everybody if decide(reference, request, user)}
        assert found.anyone == (STRANGER in allowed)
        assert set(found.users) == (allowed & users(program, state) if found.anyone else allowed)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@example(EVERYONE)
@given(WORLDS)
def test_principals_suffice_alone(world: tuple[int, int]) -> None:
    check_principals(world)


def check_principals(world: tuple[int, int]) -> None:
    program, state, reference = generated_world(world)
    for request in worlds.requests(program, world[1], per_rule=1):
        found = who_can(reference, state, request).principals()
        assert all(fits(program, p.principal, p.scope) for p in found)
        enough = {(p.principal, p.scope) for p in found if () in p.needs}
        if ("anyone", None) in enough:
            assert len(found) == 1
            assert alone(program, state, request, "anyone", None)
            continue
        tried = {
            (principal, scope): alone(program, state, request, principal, scope)
            for principal, scope in candidates(state)
            if fits(program, principal, scope)
        }
        assert {key for key in enough if key in tried} == {key for key, allowed in tried.items() if allowed}
        for principal, scope in enough - set(tried):
            assert alone(program, state, request, principal, scope)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@example(EVERYONE)
@given(WORLDS)
def test_needs_of_principals_are_exact(world: tuple[int, int]) -> None:
    check_needs(world)


def check_needs(world: tuple[int, int]) -> None:
    program, state, reference = generated_world(world)
    for request in worlds.requests(program, world[1], per_rule=1):
        for found in who_can(reference, state, request).principals():
            for way in found.needs:
                joined = replace(state, members=(*state.members, *((STRANGER, entity(atom)) for atom in way)))
                assert alone(program, joined, request, found.principal, found.scope)
                assert not way or not alone(program, state, request, found.principal, found.scope)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.tuples(st.integers(), st.integers()))
def test_who_can_in_generated_worlds(world: tuple[int, int]) -> None:
    check_users(world)
    check_principals(world)
    check_needs(world)


def generated_world(world: tuple[int, int]) -> tuple[Program, State, Reference]:
    program = generated_programs.program(world[0], *FEATURES[world[0] % len(FEATURES)])
    state = worlds.state(program, world[1])
    return program, state, Reference(program, state)


def decide(reference: Reference, request: Request, user: str) -> bool:
    of_user = replace(request.attributes, user={})
    return reference.decide(replace(request, user=user, groups=(), attributes=of_user)).allowed


def candidates(state: State) -> set[tuple[str, str | None]]:
    grantees = {g.grantee for g in state.grants} | {owner for _, owner in state.owners}
    found: set[tuple[str, str | None]] = {(p, None) for p in grantees if not p.startswith("user:")}
    found |= {(a.principal, None) for a in state.assignments if not a.principal.startswith("user:")}
    found |= {(f"group:{group}", None) for _, group in state.memberships}
    for a in state.assignments:
        found.add((f"role:{a.role}", None if a.scope is None else str(a.scope)))
    return found | {(f"user:{user}", None) for user in worlds.USERS} | {("anyone", None)}


def fits(program: Program, principal: str, scope: str | None) -> bool:
    """Whether somebody can be that: a role that is declared with a scope is held within such a scope alone."""
    declared = program.roles.get(principal.removeprefix("role:")) if principal.startswith("role:") else None
    return declared is None or declared.scope is None or (scope or "").partition(":")[0] == declared.scope


def alone(program: Program, state: State, request: Request, principal: str, scope: str | None) -> bool:
    """Whether somebody is allowed who is that principal and nothing else."""
    kind, _, name = principal.partition(":")
    user, groups = STRANGER, tuple[str, ...]()
    within = None if scope is None else Entity.parse(scope)
    match kind:
        case "user":
            user = name
            state = replace(
                state,
                memberships=tuple(m for m in state.memberships if m[0] != name),
                assignments=tuple(a for a in state.assignments if a.principal != principal),
            )
        case "group":
            state = replace(state, memberships=(*state.memberships, (STRANGER, name)))
            groups = (name,)
        case "role":
            given_ = Assignment(principal=f"user:{STRANGER}", role=name, scope=within)
            state = replace(state, assignments=(*state.assignments, given_))
    as_principal = replace(request, user=user, groups=groups, attributes=replace(request.attributes, user={}))
    return Reference(program, state).decide(as_principal).allowed


def entity(atom: str) -> Entity:
    assert atom.startswith("member (")
    return Entity.parse(atom.removeprefix("member (").removesuffix(")"))


def test_each_user_is_listed_with_the_atoms_that_allow() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    state = State(
        members=(("ann", Entity("metalake", "m")), ("ben", Entity("metalake", "m"))),
        memberships=(("ann", "staff"),),
        assignments=(Assignment(principal="group:staff", role="reader"),),
        owners=((Entity("metalake", "m"), "user:ben"),),
        grants=(Grant(grantee="role:reader", effect="allow", privilege="USE_CATALOG", entity=Entity("metalake", "m")),),
    )
    request = Request(user="whoever", action="load", resource=Entity("catalog", "m/c"))
    found = who_can(Reference(program, state), state, request)
    assert found.users == ("ann", "ben")
    assert not found.anyone
    assert [(t.atom, t.through) for t in found.through("ann")] == [
        ("member (metalake:m)", "user:ann"),
        ("USE_CATALOG (catalog:m/c)", "role:reader"),
    ]
    assert found.through("ben")[-1].atom == "owner (metalake:m)"
    member = (("member (metalake:m)",),)
    assert found.principals() == (
        Principal(principal="group:staff", scope=None, needs=member),
        Principal(principal="role:reader", scope=None, needs=member),
        Principal(principal="user:ben", scope=None, needs=((),)),
    )
    with pytest.raises(InvalidRequest, match="unknown operation"):
        who_can(Reference(program, state), state, replace(request, action="lode"))


SCOPED = """\
privtab: 1
system: scoped
version: "1"
entities: {top: {mid: {low: }}, far: }
privileges: [READ]
roles: {keeper: {scope: mid, grants: {low: [READ]}}}
tables:
  low: {see: READ (low)}
  far: {see: READ (far)}
"""


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("low:t/m/l", [Principal(principal="role:keeper", scope="mid:t/m", needs=((),))]),
        ("far:f", []),
    ],
)
def test_a_role_with_a_scope_is_enough_within_one_alone(
    resource: str, expected: list[Principal], tmp_path: Path
) -> None:
    (tmp_path / "scoped.yaml").write_text(SCOPED)
    program = pipeline.load_program(tmp_path / "scoped.yaml")
    grant = Grant(grantee="role:keeper", effect="allow", privilege="READ", entity=Entity("far", "f"))
    state = State(grants=(grant,))
    request = Request(user="", action="see", resource=Entity.parse(resource))
    assert list(who_can(Reference(program, state), state, request).principals()) == expected


HELD = """\
privtab: 1
system: held
version: "1"
entities: {top: {low: }}
privileges: [READ]
semantics: {inheritance: down, hierarchy: [roles]}
roles: {keeper: {scope: top, grants: {low: [READ]}}}
tables: {low: {see: READ (low)}}
"""


def test_a_role_that_holds_another_is_enough_within_each_scope_for_which_it_is_assigned() -> None:
    program = generated_programs.lowered(HELD)[0]
    top, low = Entity("top", "t"), Entity("low", "t/l")
    state = State(
        assignments=(
            Assignment(principal="role:chief", role="keeper", scope=top),
            Assignment(principal="user:ann", role="chief", scope=low),
        )
    )
    request = Request(user="", action="see", resource=low)
    assert list(who_can(Reference(program, state), state, request).principals()) == [
        Principal(principal="role:chief", scope=None, needs=((),)),
        Principal(principal="role:chief", scope="low:t/l", needs=((),)),
        Principal(principal="role:keeper", scope="top:t", needs=((),)),
    ], "not `keeper` within low:t/l: the role is declared for `top`"


def test_a_membership_that_another_rule_requires_is_needed_with_each_other_membership() -> None:
    text = """\
privtab: 1
system: member
version: "1"
entities: {top: {low: }}
privileges: [READ]
tables:
  top: {go: member (top)}
  low: {see: (member (low) or member (top)) and can go (top)}
"""
    program = generated_programs.lowered(text)[0]
    request = Request(user="", action="see", resource=Entity("low", "t/l"))
    assert who_can(Reference(program, State()), State(), request).principals() == (
        Principal(principal="anyone", scope=None, needs=(("member (top:t)",),)),
    )


@pytest.mark.parametrize("seed", seeds(range(12), quick=4))
def test_conditions_too_large_to_be_written_out_are_answered_equivalence(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = generated_programs.program(seed, *(("below", "hierarchy", "implies") if seed % 2 else ()))
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    monkeypatch.setattr(request_forms, "MOST_PARTS", 0)
    same = Reference(replace(program), state)  # whose conditions are read anew
    for request in worlds.requests(program, seed, 1):
        kept = who_can(same, state, request)
        monkeypatch.undo()
        found = who_can(reference, state, request)
        monkeypatch.setattr(request_forms, "MOST_PARTS", 0)
        assert (found.users, found.anyone, found.principals()) == (kept.users, kept.anyone, kept.principals())
