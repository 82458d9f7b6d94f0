"""The unrolled form of a program decides as the program itself, and has as many levels as a question needs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import worlds

from privtab import pipeline
from privtab.base.errors import Undecided
from privtab.base.request import Entity, Request
from privtab.ir.canonical import canonical_form
from privtab.ir.exact import ImplicationChecker
from privtab.ir.nodes import Atomic, Formula, Program
from privtab.ir.unroll import Unrolled, levels_that_matter, unrolled
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Assignment, Grant, State


def program_of(seed: int, folder: Path) -> Program:
    path = folder / f"{seed}.yaml"
    path.write_text(
        worlds.policy(seed, features=("nested", "implies", *(("below",) if seed % 3 else ()))), encoding="utf-8"
    )
    return pipeline.load_program(path)


def entity_at(unrolling: Unrolled, reference: Reference, entity: Entity) -> Entity:
    levels = reference.vocabulary.shapes[entity.type].levels(entity.id)
    return Entity(unrolling.at(entity.type, levels), entity.id)


def state_at(unrolling: Unrolled, reference: Reference, state: State) -> State:
    def at(entity: Entity) -> Entity:
        return entity_at(unrolling, reference, entity)

    return State(
        members=tuple((user, at(of)) for user, of in state.members),
        memberships=state.memberships,
        assignments=tuple(
            Assignment(principal=a.principal, role=a.role, scope=None if a.scope is None else at(a.scope))
            for a in state.assignments
        ),
        grants=tuple(
            Grant(grantee=g.grantee, effect=g.effect, privilege=g.privilege, entity=at(g.entity)) for g in state.grants
        ),
        owners=tuple((at(entity), owner) for entity, owner in state.owners),
        service_admins=state.service_admins,
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_unrolled_program_decides_as_the_program(seed: int, tmp_path: Path) -> None:
    program = program_of(seed, tmp_path)
    unrolling = unrolled(program)
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    flat = unrolling.at_most(4)
    assert not flat.nests
    other = Reference(flat, state_at(unrolling, reference, state))
    compared = 0
    for request in worlds.requests(program, seed, 8):
        if not program.rules[request.resource.type, request.action].withs and reference.vocabulary.complete(
            request.resource
        ):
            moved = Request(
                user=request.user,
                action=request.action,
                resource=entity_at(unrolling, reference, request.resource),
                groups=request.groups,
                flags=request.flags,
            )
            assert other.decide(moved).allowed == reference.decide(request).allowed, request
            compared += 1
    assert compared


def implies_up_to(program: Program, f: Formula, g: Formula, most: int) -> bool:
    unrolling = unrolled(program)
    exact = ImplicationChecker(unrolling.at_most(most))
    return all(
        exact.implies(unrolling.formula(f, levels), unrolling.formula(g, levels))
        for levels in unrolling.requests((f, g), most)
    )


@pytest.mark.slow
def test_more_levels_than_those_that_matter_change_no_answer(tmp_path: Path) -> None:
    rnd = random.Random(7)
    implied = different = 0
    for seed in range(30):
        program = program_of(seed, tmp_path)
        exact = ImplicationChecker(program)
        rules = [rule for rule in program.rules.values() if not rule.withs and rule.entity in ("mid", "low")]
        for _ in range(6 if rules else 0):
            left, right = rnd.choices(rules, k=2)
            f, g = (rule.item_condition for rule in (left, right))
            if left.entity != right.entity:
                continue
            most = levels_that_matter((program, f), (program, g))
            try:
                answer = exact.implies(f, g)
                assert answer == implies_up_to(program, f, g, most + 2), (seed, left.id, right.id)
            except Undecided:
                continue
            implied, different = implied + answer, different + (not answer)
    assert implied > 10
    assert different > 10


NAMESPACES = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: true}}
privileges: [USE, READ]
semantics: {inheritance: INHERITANCE, deny: DENY, owner: {kinds: [user]}}
tables:
  table:
    nearest: USE (namespace)
    first: USE (first namespace)
    some: USE (any namespace)
    each: USE (every namespace)
    owns_first: owner (first namespace)
    owns_some: owner (any namespace)
    owns_each: owner (every namespace)
  namespace:
    around: USE (parent)
    here: USE (namespace)
    some: USE (any namespace)
"""
TABLE = {
    ("down", "none"): {"each first", "each nearest", "each some", "first each", "first nearest", "first some"}
    | {"nearest some", "some nearest"},
    ("down", "overrides"): {"each first", "each nearest", "each some", "first some", "nearest some"},
    ("none", "none"): {"each first", "each nearest", "each some", "first some", "nearest some"},
}


@pytest.mark.parametrize(("inheritance", "deny"), list(TABLE))
def test_implications_between_levels(inheritance: str, deny: str, tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(NAMESPACES.replace("INHERITANCE", inheritance).replace("DENY", deny), encoding="utf-8")
    program = pipeline.load_program(path)
    exact = ImplicationChecker(program)
    condition = {operation: rule.item_condition for (_, operation), rule in program.rules.items()}
    names = ("nearest", "first", "some", "each")
    condition |= {"some": program.rules["table", "some"].item_condition}
    found = {f"{a} {b}" for a in names for b in names if a != b and exact.implies(condition[a], condition[b])}
    assert found == TABLE[inheritance, deny]
    owned = [f"owns_{name}" for name in ("first", "some", "each")]
    pairs = {f"{a} {b}" for a in owned for b in owned if a != b and exact.implies(condition[a], condition[b])}
    assert pairs == {"owns_each owns_first", "owns_each owns_some", "owns_first owns_some"}
    around, at_itself = condition["around"], condition["here"]
    assert exact.implies(around, at_itself) == (inheritance == "down" and deny == "none")
    assert not exact.implies(at_itself, around)


@pytest.mark.parametrize(("inheritance", "deny"), list(TABLE))
def test_what_owners_of_levels_have(inheritance: str, deny: str, tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    text = NAMESPACES.replace("owner: {kinds: [user]}", "owner: {kinds: [user], holds: [USE]}")
    path.write_text(text.replace("INHERITANCE", inheritance).replace("DENY", deny), encoding="utf-8")
    program = pipeline.load_program(path)
    exact, form = ImplicationChecker(program), canonical_form(program)
    conditions = ((rule, rule.item_condition) for rule in program.rules.values() if rule.entity == "table")
    condition = {rule.operation: atom for rule, atom in conditions if isinstance(atom, Atomic)}
    owned = [f"owns_{name}" for name in ("first", "some", "each")]
    found = {
        f"{a} {b}"
        for a in owned
        for b in ("nearest", "first", "some", "each")
        if form.entails(frozenset({condition[a]}), condition[b])
    }
    assert all(exact.implies(condition[a], condition[b]) for a, b in map(str.split, found))
    assert ("owns_some nearest" in found) == ((inheritance, deny) == ("down", "none"))


BELOW = (
    NAMESPACES.partition("tables:")[0]
    + """
tables:
  table:
    nearest: USE (namespace)
    first: USE (first namespace)
    below: USE (namespace or below)
    first_below: USE (first namespace or below)
    owns_some: owner (any namespace)
    owns_below: owner (namespace or below)
    owns_first_below: owner (any namespace or below)
    reads: READ (table)
    reads_below: READ (every namespace or below)
"""
)
BELOW_ALWAYS = {"nearest below", "nearest first_below", "below first_below", "first first_below"} | {
    "reads reads_below", "owns_below owns_first_below", "owns_some owns_first_below"
}  # fmt: skip
BELOW_WITHOUT_DENIALS = {"first nearest", "first below"}


@pytest.mark.parametrize(("inheritance", "deny"), list(TABLE))
@pytest.mark.parametrize("levels", ["true", "1"])
def test_what_is_held_below_levels_implies(inheritance: str, deny: str, levels: str, tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    text = BELOW.replace("INHERITANCE", inheritance).replace("DENY", deny).replace("nested: true", f"nested: {levels}")
    path.write_text(text, encoding="utf-8")
    program = pipeline.load_program(path)
    exact, form = ImplicationChecker(program), canonical_form(program)
    condition = {operation: rule.item_condition for (_, operation), rule in program.rules.items()}
    pairs = {f"{a} {b}": (condition[a], condition[b]) for a in condition for b in condition if a != b}
    found = {names for names, (f, g) in pairs.items() if exact.implies(f, g)}
    expected = BELOW_ALWAYS | (BELOW_WITHOUT_DENIALS if (inheritance, deny) == ("down", "none") else set())
    if levels == "1":
        # The first namespace is the nearest one, and no namespace lies in it.
        assert found > expected
        assert "first_below below" in found
    else:
        assert found == expected
        entailed = {
            names
            for names, (f, g) in pairs.items()
            if isinstance(f, Atomic) and isinstance(g, Atomic) and form.entails(frozenset({f}), g)
        }
        assert entailed == found, "minimal sets know what the solver knows"
