"""The canonical form is exact: two conditions have the same minimal sets if and only if no state tells them apart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import and_, or_

import generated_programs
import pytest
from seeds import seeds

from privtab.base.diagnostics import Span
from privtab.ir.canonical import Canonical
from privtab.ir.declarations import OwnerSemantics, Semantics
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import reached_atoms
from privtab.ir.names import atom_text
from privtab.ir.nodes import (
    ALWAYS,
    NEVER,
    RESOURCE,
    And,
    Atom,
    ByType,
    EntityType,
    Formula,
    Has,
    HasBelow,
    Member,
    Or,
    Owner,
    OwnsBelow,
    Privilege,
    Program,
    Rule,
    Target,
    When,
)
from privtab.ir.shapes import shapes

TYPES = ("top", "mid", "low")
SPAN = Span(path="p.yaml", line=1, column=1, end_line=1, end_column=2)


def program(inheritance: str, deny: str, holds: tuple[str, ...]) -> Program:
    entities = {
        name: EntityType(name=name, parent=parent) for name, parent in zip(TYPES, (None, *TYPES[:2]), strict=True)
    }
    return Program(
        system="s",
        version="1",
        title=None,
        entities=entities,
        privileges={"P": Privilege(name="P", on=TYPES)},
        aliases={},
        sets={},
        roles={},
        semantics=Semantics(
            inheritance="down" if inheritance == "down" else "none",
            deny="overrides" if deny == "overrides" else "none",
            owner=OwnerSemantics(holds=holds),
        ),
        rules={},
    )


def target(type_: str) -> Target:
    return Target(slot=RESOURCE, type=type_)


ATOMS: tuple[Atom, ...] = (
    *(Has(privilege="P", target=target(t)) for t in TYPES),
    *(Owner(target=target(t)) for t in TYPES),
    Member(target=target("top")),
)


def truths(program: Program) -> Iterator[Mapping[Atom, bool]]:
    """What is true in each possible state: allowed, denied and owned at each level, a member or not."""
    down = program.semantics.inheritance == "down"
    denies = program.semantics.deny == "overrides"
    owners_have = program.semantics.owner is not None and "P" in program.semantics.owner.holds
    levels = list(itertools.product([False, True], repeat=3))
    for allow, deny, owned, member in itertools.product(levels, levels if denies else [(False,) * 3], levels, [0, 1]):
        truth: dict[Atom, bool] = {Member(target=target("top")): bool(member)}
        for i, type_ in enumerate(TYPES):
            levels_that_count = range(i + 1) if down else [i]
            granted = any(allow[j] for j in levels_that_count) and not any(deny[j] for j in levels_that_count)
            truth[Has(privilege="P", target=target(type_))] = granted or (
                owners_have and any(owned[j] for j in levels_that_count)
            )
            truth[Owner(target=target(type_))] = owned[i]
        yield truth


def states_by_atom(program: Program) -> Mapping[Atom, int]:
    """The possible states in which each atom holds, as a bit mask."""
    found: dict[Atom, int] = {}
    for number, truth in enumerate(truths(program)):
        for atom, holds in truth.items():
            found[atom] = found.get(atom, 0) | holds << number
    return found


def meaning_of(formula: Formula, states: Mapping[Atom, int]) -> int:
    """The states in which a condition holds, as a bit mask."""
    match formula:
        case And():
            return reduce(and_, (meaning_of(part, states) for part in formula.parts))
        case Or():
            return reduce(or_, (meaning_of(part, states) for part in formula.parts))
        case Has() | Owner() | Member():
            return states[formula]
        case _:
            raise AssertionError(formula)


def some_formula(rnd: random.Random, depth: int) -> Formula:
    if depth and rnd.random() < 0.75:
        parts = tuple(some_formula(rnd, depth - 1) for _ in range(rnd.randint(2, 3)))
        return And(parts=parts) if rnd.random() < 0.5 else Or(parts=parts)
    return rnd.choice(ATOMS)


MEANINGS = [
    (inheritance, deny, holds)
    for inheritance in ("none", "down")
    for deny in ("none", "overrides")
    for holds in ((), ("P",))
]


@pytest.mark.parametrize(("inheritance", "deny", "holds"), MEANINGS)
def test_equal_minimal_sets_mean_equal_conditions(inheritance: str, deny: str, holds: tuple[str, ...]) -> None:
    of = program(inheritance, deny, holds)
    form = Canonical(of)
    states = states_by_atom(of)
    rnd = random.Random(f"{inheritance} {deny} {holds}")
    by_meaning: dict[int, set[object]] = {}
    by_form: dict[object, set[int]] = {}
    for _ in range(400):
        formula = some_formula(rnd, 3)
        meaning = meaning_of(formula, states)
        sets = form.minimal_sets(formula)
        by_meaning.setdefault(meaning, set()).add(sets)
        by_form.setdefault(sets, set()).add(meaning)
    assert all(len(sets) == 1 for sets in by_meaning.values()), "one meaning, several forms"
    assert all(len(meanings) == 1 for meanings in by_form.values()), "one form, several meanings"
    assert len(by_form) > 40


@pytest.mark.parametrize(("inheritance", "deny", "holds"), MEANINGS)
def test_implication_is_exact(inheritance: str, deny: str, holds: tuple[str, ...]) -> None:
    of = program(inheritance, deny, holds)
    form = Canonical(of)
    states = states_by_atom(of)
    rnd = random.Random(f"implies {inheritance} {deny} {holds}")
    seen = set()
    for _ in range(300):
        first, second = some_formula(rnd, 2), some_formula(rnd, 2)
        expected = not meaning_of(first, states) & ~meaning_of(second, states)
        found = form.implies(
            [frozenset(s) for s in form.minimal_sets(first)], [frozenset(s) for s in form.minimal_sets(second)]
        )
        assert found == expected, f"{first} implies {second}"
        seen.add(expected)
    assert seen == {True, False}


@pytest.mark.parametrize(("inheritance", "deny", "holds"), MEANINGS)
def test_minimal_sets_and_the_solver_decide_alike(inheritance: str, deny: str, holds: tuple[str, ...]) -> None:
    of = program(inheritance, deny, holds)
    rnd = random.Random(f"solver {inheritance} {deny} {holds}")
    seen = set()
    for _ in range(100):
        first, second = some_formula(rnd, 2), some_formula(rnd, 2)
        exact = ImplicationChecker(of)
        found = exact._implied_by_sets(first, second)
        assert found is not None, "neither condition depends on the request"
        assert found == exact.implies_with(first, second, None, {}, None), f"{first} implies {second}"
        seen.add(found)
    assert seen == {True, False}


def texts(of: Program, formula: Formula, flags: frozenset[str] = frozenset()) -> list[list[str]]:
    rule = Rule(
        id="s/low/op", entity="low", operation="op", title="op", origin="row", gate=ALWAYS, requires=formula, each=None,
        span=SPAN,
    )  # fmt: skip
    return [[atom_text(a, rule) for a in row] for row in Canonical(of).minimal_sets(formula, flags)]


def has(type_: str) -> Has:
    return Has(privilege="P", target=target(type_))


def test_above_makes_below_needless_only_without_denials() -> None:
    both = Or(parts=(has("top"), has("mid")))
    assert texts(program("down", "none", ()), both) == [["P (mid)"]]
    assert texts(program("down", "overrides", ()), both) == [["P (top)"], ["P (mid)"]]
    assert texts(program("none", "none", ()), both) == [["P (top)"], ["P (mid)"]]


def test_above_and_below_give_what_lies_between() -> None:
    all_three = And(parts=(has("top"), has("mid"), has("low")))
    assert texts(program("down", "overrides", ()), all_three) == [["P (top)", "P (low)"]]
    assert texts(program("down", "overrides", ("P",)), all_three) == [["P (top)", "P (mid)", "P (low)"]]


def test_owner_who_holds_all_needs_no_grant() -> None:
    either = Or(parts=(has("mid"), Owner(target=target("mid"))))
    assert texts(program("none", "none", ("P",)), either) == [["P (mid)"]]
    assert texts(program("none", "none", ()), either) == [["P (mid)"], ["owner (mid)"]]


def test_always_and_never() -> None:
    of = program("none", "none", ())
    assert texts(of, ALWAYS) == [[]]
    assert texts(of, NEVER) == []
    assert texts(of, Or(parts=(has("mid"), ALWAYS))) == [[]]
    assert texts(of, And(parts=(has("mid"), NEVER))) == []


def test_a_flag_adds_a_requirement_when_it_is_set() -> None:
    of = program("none", "none", ())
    formula = And(parts=(has("low"), When(flag="force", body=has("top"))))
    assert texts(of, formula) == [["P (low)"]]
    assert texts(of, formula, frozenset({"force"})) == [["P (top)", "P (low)"]]


def test_minimal_sets_stay_right_beside_many_other_programs() -> None:
    original = program("none", "none", ())
    parts = tuple(Has(privilege="P", target=Target(slot=RESOURCE, type=type_)) for type_ in ("mid", "low"))
    form = Canonical(original)
    assert [len(atoms) for atoms in form.minimal_sets(And(parts=parts))] == [2]
    for _ in range(10):  # more than are kept
        shapes(replace(original))
    assert [len(atoms) for atoms in form.minimal_sets(Or(parts=parts))] == [1, 1]


@pytest.mark.parametrize("seed", seeds(range(120), quick=30))
def test_what_atoms_entail_holds_in_every_state(seed: int) -> None:
    """Also where privileges imply others, and some are inherited and others are not."""
    of = generated_programs.program(seed, "implies", "below")
    form, exact = Canonical(of), ImplicationChecker(of)
    for rule in of.rules.values():
        condition = rule.item_condition
        found = [a for a in reached_atoms(of, condition) if isinstance(a, Has | HasBelow | Owner | OwnsBelow)][:6]
        for premises in (*itertools.combinations(found, 1), *itertools.combinations(found, 2)):
            for conclusion in found:
                if form.entails(frozenset(premises), conclusion):
                    assert exact.implies(And.of(*premises), conclusion), (premises, conclusion, of.semantics)
        for several, entailed in form.entailments(found):
            assert exact.implies(And.of(*several), entailed), (several, entailed, of.semantics)


def test_the_order_tells_attributes_of_several_types_apart() -> None:
    table = generated_programs.program(18, "attributes", "nobody")
    form = Canonical(table)
    atoms = {atom for found in form.minimal_sets(table.rules["user", "Op0"].requires) for atom in frozenset(found)}
    choices = [atom.text for atom in atoms if isinstance(atom, ByType)]
    assert len(choices) > len({*choices})
    assert len({form.order(atom) for atom in atoms}) == len(atoms)
