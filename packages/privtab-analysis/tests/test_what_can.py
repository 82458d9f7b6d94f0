from __future__ import annotations

from itertools import product

import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import seeds

from privtab import InvalidRequest
from privtab.base import Entity, Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import State, locations
from privtab_analysis.caller import asked_forms
from privtab_analysis.entitlements.columns import Columns
from privtab_analysis.entitlements.universe import Universe, rows_entities
from privtab_analysis.permissions import AllowedOperation, lines, what_can

MOST = 400
"""Choices of further objects that are tried for one operation on one entity."""


@pytest.mark.slow
@settings(max_examples=14, deadline=None)
@given(st.integers(0, 400), st.integers(0, 10_000), st.sampled_from([*worlds.USERS, "stranger"]), st.booleans())
def test_what_can_agrees_with_one_decision_for_each_request(policy: int, seed: int, user: str, force: bool) -> None:
    check(policy, seed, user, force)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.integers(), st.integers(), st.sampled_from([*worlds.USERS, "stranger"]), st.booleans())
def test_what_can_in_generated_worlds(policy: int, seed: int, user: str, force: bool) -> None:
    check(policy, seed, user, force)


FEATURES = (
    (),
    ("nested", "implies"),
    ("below", "hierarchy"),
    ("implies",),
    ("attributes",),
    ("nested", "attributes"),
    ("flat", "nested"),
    ("flat", "below"),
    ("nested", "below", "implies"),
)


def check(policy: int, seed: int, user: str, force: bool) -> None:
    program = generated_programs.program(policy, *FEATURES[policy % len(FEATURES)])
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    flags = frozenset({"force"} if force else ())
    found = what_can(reference, state, user, flags=flags)
    universe = Universe(program, rows_entities(state), locations(program, state))
    expected = one_by_one(program, reference, universe, user, flags)
    assert {key(may): may.choices for may in found.allowed} == expected
    for may in found.allowed:
        stated = worlds.stated_flags(program.rules[may.resource.type, may.operation], flags)
        request = Request(user=user, action=may.operation, resource=may.resource, with_=may.with_, flags=stated)
        assert reference.decide(request).allowed


@pytest.mark.parametrize("seed", seeds(range(20), quick=2))
def test_flat_ids(seed: int) -> None:
    for user in (*worlds.USERS[:2], "stranger"):
        check(7 * seed + 5 + seed % 2, seed, user, bool(seed % 3))


def one_by_one(
    program: Program, reference: Reference, universe: Universe, user: str, flags: frozenset[str]
) -> dict[tuple[str, str, bool], int | None]:
    allowed: dict[tuple[str, str, bool], int | None] = {}
    for rule in program.rules.values():
        type_ = program.entities[rule.entity]
        named = True in asked_forms(program, rule)
        resources = [(entity, False) for entity in universe.by_type[rule.entity].values() if named]
        if rule.unnamed and not type_.single:
            above = [Entity(rule.entity, "")] if type_.parent is None else universe.by_type[type_.parent].values()
            above = [*above, *(universe.by_type[rule.entity].values() if type_.nested else ())]
            shape = reference.vocabulary.shapes[rule.entity]
            calls = [f"{parent}/" if rule.entity in program.flat else parent.id and f"{parent.id}/" for parent in above]
            resources += [
                (Entity(rule.entity, call), True)
                for call in calls
                if shape.flat is not None or call.count("/") < shape.most
            ]
        pools = [worlds.choices(slot, universe) for slot in rule.withs]
        for entity, unnamed in resources:
            passed = 0
            for chosen in product(*pools):
                with_ = {slot.name: e for slot, e in zip(rule.withs, chosen, strict=True) if e is not None}
                stated = worlds.stated_flags(rule, flags)
                request = Request(user=user, action=rule.operation, resource=entity, with_=with_, flags=stated)
                passed += reference.decide(request).allowed
            if passed:
                allowed[rule.operation, str(entity), unnamed] = passed if len(rule.withs) == 1 else None
    return allowed


def key(may: AllowedOperation) -> tuple[str, str, bool]:
    return may.operation, str(may.resource), may.unnamed


def test_one_entity_alone_named_by_the_state_or_not() -> None:
    program = generated_programs.program(1)
    state = worlds.state(program, 1)
    reference = Reference(program, state)
    rights = what_can(reference, state, "ann", Entity("low", "x/new/new"))
    assert rights.entities == (Entity("low", "x/new/new"),)
    with pytest.raises(InvalidRequest, match="wrong depth"):
        what_can(reference, State(), "ann", Entity("low", "x"))


IN_COLUMNS = ((), ("implies", "any", "scopes"), ("hierarchy", "gates"), ("nobody", "filters"))


@pytest.mark.parametrize("seed", seeds(range(40), quick=4))
def test_columns_say_what_is_decided_class_by_class(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = generated_programs.program(seed, *IN_COLUMNS[seed % len(IN_COLUMNS)])
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    assert Columns.fit(program)
    for user in (*worlds.USERS, "stranger"):
        in_columns = what_can(reference, state, user)
        with monkeypatch.context() as patched:
            patched.setattr(Columns, "fit", lambda _: False)
            in_classes = what_can(reference, state, user)
        assert [(key(may), may.choices) for may in in_columns.allowed] == [
            (key(m), m.choices) for m in in_classes.allowed
        ]
        assert lines(program, in_columns) == lines(program, in_classes)
        assert in_columns.count == in_classes.count == len(in_classes.allowed)
        assert in_columns.question_count == in_classes.question_count
        assert list(in_columns.entities) == list(in_classes.entities)


@pytest.mark.parametrize("seed", range(12))
def test_one_entity_gets_the_answers_that_it_has_among_all(seed: int) -> None:
    program = generated_programs.program(seed)
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    every = what_can(reference, state, "ann", flags=frozenset({"force"}))
    for entity in every.entities:
        alone = what_can(reference, state, "ann", entity, flags=frozenset({"force"}))
        among = [may for may in every.allowed if may.resource == entity]
        assert [may for may in alone.allowed if may.resource == entity] == among
