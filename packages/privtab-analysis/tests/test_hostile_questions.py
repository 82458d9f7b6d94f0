"""Questions about policies with too many minimal sets: the right answer, or none."""

from __future__ import annotations

import json
from dataclasses import replace

import generated_programs
import hostile
import pytest

from privtab.base import Entity, Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Grant, State, from_tables, validate
from privtab_analysis.changes import apply
from privtab_analysis.explanation import explain
from privtab_analysis.goals import Goal, operation_goal
from privtab_analysis.paths import ReachableRights
from privtab_analysis.permissions import what_can
from privtab_analysis.principals import Principal, who_can

SHOP = Entity("shop", "s")


def granted(*privileges: str, on: Entity = SHOP) -> State:
    return State(grants=tuple(Grant(effect="allow", privilege=p, entity=on, grantee="user:ann") for p in privileges))


CUT = (
    "12 disjunctions of 4",
    "20 clauses of 20",
    "20 tangled clauses of 20",
    "chain of 20 can, 20 alternatives each",
    "chain of 30 can, each asked for twice",
)
"""Policies whose minimal sets are too many to list."""


def hostile_case(name: str, user: str) -> tuple[Program, State, Request]:
    """A hostile policy, its state, and a request for its last row."""
    text = hostile.POLICIES[name]()
    program = generated_programs.lowered(text)[0]
    state, _ = validate(program, from_tables(json.loads(hostile.state(text)), "state"))
    resource = Entity.parse(hostile.resource(text))
    return program, state, Request(user=user, action=hostile.operation(text), resource=resource)


def test_what_can_on_an_opaque_condition() -> None:
    program = generated_programs.lowered(hostile.cnf(20, 20))[0]
    state = granted(*(f"P{i * 20}" for i in range(20)))
    found = what_can(Reference(program, state), state, "ann", SHOP)
    assert [may.operation for may in found.allowed] == ["load"]
    state = granted(*(f"P{i * 20}" for i in range(19)))
    assert not what_can(Reference(program, state), state, "ann", SHOP).allowed


@pytest.mark.parametrize("name", CUT)
def test_users_and_principals_are_those_who_are_allowed(name: str) -> None:
    program, state, request = hostile_case(name, "")
    reference = Reference(program, state)
    found = who_can(reference, state, request)
    alone = {p for p in found.known if reference.decide(replace(request, user=p)).allowed}
    assert set(found.users) == alone
    assert "all" in alone
    assert found.through("all")
    for through in found.through("all"):
        assert through.through in {"user:all", "role:first"}


@pytest.mark.parametrize("name", CUT)
def test_a_principal_that_suffices_alone_is_named(name: str) -> None:
    program, state, request = hostile_case(name, "")
    state = replace(state, grants=(*state.grants, *(replace(g, grantee="user:boss") for g in state.grants)))
    found = who_can(Reference(program, state), state, request).principals()
    assert Principal(principal="user:boss", scope=None, needs=((),)) in found
    assert not [p for p in found if p.principal == "user:u1"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if at else pytest.mark.slow) for at, name in enumerate(CUT)]
)
def test_a_denial_is_explained_by_some_ways_each_of_which_turns_it(name: str) -> None:
    program, state, request = hostile_case(name, "u1")
    why = explain(Reference(program, state), request, state)
    assert not why.decision.allowed
    assert (why.sets_complete, why.turns_complete) == (False, False)
    assert 0 < len(why.turns) <= 25
    for way in why.turns[:3]:
        for at in range(-1, len(way)):
            some = [change for n, change in enumerate(way) if n != at]
            decision = Reference(program, apply(state, "u1", some)).decide(request)
            assert decision.allowed is (at == -1)


@pytest.mark.parametrize("name", CUT)
def test_an_allow_is_explained_by_a_way_that_holds(name: str) -> None:
    program, state, request = hostile_case(name, "ann")
    names = [f"P{i}" for i in range(399, -1, -1) if f"P{i}" in program.privileges]
    state = granted(*names, on=request.resource)
    why = explain(Reference(program, state), request, state)
    assert why.decision.allowed
    satisfied = [parts for parts in why.sets if all(part.holds for part in parts)]
    assert satisfied
    for at in range(len(satisfied[0])):
        left = [part.atom.partition(" ")[0] for n, part in enumerate(satisfied[0]) if n != at]
        assert not Reference(program, granted(*left, on=request.resource)).decide(request).allowed, "none is idle"


def test_objects_are_chosen_by_the_condition_where_its_ways_are_too_many() -> None:
    text = hostile.cnf(12, 12)
    head, _, condition = text.partition("load: ")
    text = f"{head}load: {{with: {{o: shop}}, requires: {condition.strip().replace('(shop)', '(o)')}}}\n"
    program = generated_programs.lowered(text)[0]
    good, bad = Entity("shop", "good"), Entity("shop", "bad")
    grants = [*granted(*(f"P{i * 12}" for i in range(12)), on=good).grants]
    grants += granted(*(f"P{i * 12}" for i in range(11)), on=bad).grants
    state = State(grants=tuple(grants))
    found = what_can(Reference(program, state), state, "ann", bad)
    assert [(may.operation, may.with_, may.choices) for may in found.allowed] == [("load", {"o": good}, 1)]
    assert not found.undecided


def test_a_row_with_too_many_choices_of_types_is_named_and_the_others_are_answered() -> None:
    text = hostile.any_objects(3, 40).replace("{t39: {copy: ", "{t39: {read: READ (entity), copy: ")
    program = generated_programs.lowered(text)[0]
    path = "/".join(f"n{i}" for i in range(40))
    state = granted("READ", on=Entity("t39", path))
    found = what_can(Reference(program, state), state, "ann", Entity("t39", path))
    assert [may.operation for may in found.allowed] == ["read"]
    assert [rule.id for rule in found.undecided] == ["hostile/t39/copy"]


@pytest.mark.parametrize("name", ["20 clauses of 20", "chain of 30 can, each asked for twice", "30 flags"])
def test_a_path_through_a_costly_row_is_found_and_explained(name: str) -> None:
    """Whoever has all but the first privilege may do what grants it."""
    text = hostile.granting(hostile.POLICIES[name]())
    program = generated_programs.lowered(text)[0]
    names = [f"P{i}" for i in range(1, 400) if f"P{i}" in program.privileges]
    state = granted(*names, *(["P0"] if name == "30 flags" else []), on=SHOP)
    reference = Reference(program, state)
    reach = ReachableRights(reference, state, "ann")
    gained = {str(fact) for fact in reach.gains()}
    assert gained == (set() if name == "30 flags" else {"P0 (shop:s)"})
    path = reach.path(Goal.of_fact(next(iter(reach.gains())))) if gained else None
    if path is not None:
        assert [step.rule.operation for step in path.steps] == [hostile.operation(text)]
        assert path.steps[0].because


@pytest.mark.slow
def test_a_long_way_is_found_though_the_shortest_is_not_proved() -> None:
    """Forty independent grants that the goal asks for together: their sets are too many to look through."""
    rows = [f"get{i}: {{requires: P0 (shop), grants: P{i} (shop)}}" for i in range(1, 40)]
    asks = " and ".join(f"P{i} (shop)" for i in range(40))
    program = generated_programs.lowered(hostile.rows_of([f"P{i}" for i in range(40)], [*rows, f"load: {asks}"]))[0]
    state = State(members=(), grants=granted("P0").grants)
    reference = Reference(program, state)
    path = ReachableRights(reference, state, "ann").path(operation_goal(reference, "load", SHOP))
    assert path is not None
    assert len(path.steps) == 39
    assert not path.shortest
