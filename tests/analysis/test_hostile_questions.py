"""Questions about policies with too many minimal sets: the right answer, or none."""

from __future__ import annotations

import generated
import hostile
import pytest

from privtab.analysis.what_can import what_can
from privtab.analysis.who_can import who_can
from privtab.errors import Undecided
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import Grant, State

SHOP = Entity("shop", "s")


def granted(*privileges: str, on: Entity = SHOP) -> State:
    return State(grants=tuple(Grant(effect="allow", privilege=p, entity=on, grantee="user:ann") for p in privileges))


def test_what_a_user_can_is_answered_by_the_condition_itself() -> None:
    program = generated.lowered(hostile.cnf(20, 20))[0]
    state = granted(*(f"P{i * 20}" for i in range(20)))
    found = what_can(Reference(program, state), state, "ann", SHOP)
    assert [may.operation for may in found.allowed] == ["load"]
    state = granted(*(f"P{i * 20}" for i in range(19)))
    assert not what_can(Reference(program, state), state, "ann", SHOP).allowed


def test_who_can_is_not_answered_where_ways_would_be_missing() -> None:
    program = generated.lowered(hostile.cnf(20, 20))[0]
    state = granted("P0")
    asked = who_can(Reference(program, state), state, Request(user="", action="load", resource=SHOP))
    with pytest.raises(Undecided, match="not decided"):
        asked.principals()


def test_too_many_choices_of_types_are_not_decided() -> None:
    program = generated.lowered(hostile.any_objects(3, 40))[0]
    path = "/".join(f"n{i}" for i in range(40))
    state = granted("READ", on=Entity("t39", path))
    with pytest.raises(Undecided, match="not decided"):
        what_can(Reference(program, state), state, "ann")
