"""Comparisons of attributes and what follows from them: the exact tools agree with brute force over all values of small domains."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, product
from typing import Literal

import pytest
from counterexamples import counterexample

from privtab.base.attributes import AttributeValue, holds
from privtab.base.source import SourceFile
from privtab.ir.canonical import canonical_form
from privtab.ir.comparisons import Comparisons
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import Granted, Holding
from privtab.ir.formula import Truth
from privtab.ir.nodes import And, Atom, Compare, Formula, Has, Or, Program, Target, Term
from privtab.pipeline import load_program

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {lake: {table: }}
privileges: [READ]
attributes:
  user: {team: text, rank: {integer: [0, 2]}, tags: {set: [red, blue]}}
  entity: {team: {text: true, on: [table]}, color: {enum: [red, blue, gray], on: [table]}, rank: {integer: [1, 3], on: [table]}}
  request: {mfa: bool, team: text}
tables: {table: {read: READ (table) and request.mfa}}
"""
ON = Target(slot="", type="table")
TEXTS = ("a", "b", "p", "q", "r")
"""Two constants, and a text of its own for each attribute."""
DOMAINS: Mapping[Term, tuple[AttributeValue | None, ...]] = {
    Term(kind="user", attribute="team"): (None, *TEXTS),
    Term(kind="entity", attribute="team", target=ON): (None, *TEXTS),
    Term(kind="request", attribute="team"): (None, *TEXTS),
    Term(kind="user", attribute="rank"): (None, 0, 1, 2),
    Term(kind="entity", attribute="rank", target=ON): (None, 1, 2, 3),
    Term(kind="entity", attribute="color", target=ON): (None, "red", "blue", "gray"),
    Term(kind="user", attribute="tags"): (None, ("red",), ("blue",), ("red", "blue")),
    Term(kind="request", attribute="mfa"): (None, True, False),
}
TEAMS, (RANK, LEVEL, COLOR, TAGS, MFA) = tuple(DOMAINS)[:3], tuple(DOMAINS)[3:]


@cache
def program() -> Program:
    return load_program(SourceFile.of("lake.yaml", POLICY))


def comparison(rnd: random.Random, part: int) -> Compare:
    """A comparison of one of three groups of attributes."""
    order = rnd.choice(["=", "<", "<=", ">", ">="])
    if part == 0:
        left, right = rnd.sample(TEAMS, k=2)
        return rnd.choice(
            [
                Compare(left=left, operator="=", right=right),
                Compare(left=left, operator="=", right=(rnd.choice("ab"),)),
                Compare(left=left, operator="in", right=("a", "b")),
            ]
        )
    if part == 1:
        left, right = rnd.choice([(RANK, LEVEL), (LEVEL, RANK)])
        number = rnd.randint(0, 3)
        return rnd.choice(
            [Compare(left=left, operator=order, right=right), Compare(left=left, operator=order, right=(number,))]  # type: ignore[arg-type]
        )
    return rnd.choice(
        [
            Compare(left=COLOR, operator="=", right=(rnd.choice(["red", "gray"]),)),
            Compare(left=COLOR, operator="in", right=tuple(rnd.sample(["red", "blue", "gray"], k=2))),
            Compare(left=COLOR, operator="in", right=TAGS),
            Compare(left=MFA, operator="=", right=(rnd.random() < 0.5,)),
        ]
    )


def formula(rnd: random.Random, part: int, depth: int = 2) -> Formula:
    if not depth or rnd.random() < 0.2:
        return Has(privilege="READ", target=ON) if rnd.random() < 0.1 else comparison(rnd, part)
    parts = tuple(formula(rnd, part, depth - 1) for _ in range(rnd.randint(2, 3)))
    return And(parts=parts) if rnd.random() < 0.5 else Or(parts=parts)


def compares(compare: Compare, values: Mapping[Term, AttributeValue | None]) -> bool:
    left = values.get(compare.left)
    if left is None:
        return False
    if isinstance(compare.right, Term):
        right = values.get(compare.right)
        return right is not None and holds(left, compare.operator, right)
    return left in compare.right if compare.operator == "in" else holds(left, compare.operator, compare.right[0])


def worlds(part: int) -> Iterator[tuple[bool, Mapping[Term, AttributeValue | None]]]:
    terms = (TEAMS, (RANK, LEVEL), (COLOR, TAGS, MFA))[part]
    for values in product(*(DOMAINS[term] for term in terms)):
        for reads in (False, True):
            yield reads, dict(zip(terms, values, strict=True))


def holding(f: Formula, part: int) -> frozenset[int]:
    """The worlds in which a condition holds, by number."""
    numbered = enumerate(worlds(part))
    return frozenset(number for number, (reads, values) in numbered if decided(f, values, reads=reads))


def decided(f: Formula, values: Mapping[Term, AttributeValue | None], *, reads: bool) -> bool:
    def atom(a: Atom) -> bool:
        return compares(a, values) if isinstance(a, Compare) else reads

    return Truth(program(), (), {}, atom).fold(f)


def check(seed: int) -> None:
    rnd = random.Random(seed)
    part = seed % 3
    f, g = formula(rnd, part), formula(rnd, part)
    in_f, in_g = holding(f, part), holding(g, part)
    checker = ImplicationChecker(program())
    assert checker.implies(f, g) == (in_f <= in_g)
    assert checker.implies(g, f) == (in_g <= in_f)
    found = counterexample(checker, f, g)
    assert (found is None) == (in_f <= in_g)
    for facts in [] if found is None else [found]:
        true = {fact.compare for fact in facts if isinstance(fact, Holding)}
        values = Comparisons(program()).values(true, comparisons(g) - true)
        assert values is not None
        reads = any(isinstance(fact, Granted) for fact in facts)
        assert (decided(f, values, reads=reads), decided(g, values, reads=reads)) == (True, False)
    sets = canonical_form(program()).minimal_sets(f)
    by_set = [holding(And(parts=row), part) for row in sets]
    assert all(by_set), "no set contradicts itself"
    assert frozenset().union(*by_set) == in_f
    assert not any(a <= b for a, b in combinations(by_set, 2))
    assert not any(b <= a for a, b in combinations(by_set, 2))
    for row, numbers in zip(sets, by_set, strict=True):
        for atom in row:
            rest = And(parts=tuple(a for a in row if a != atom))
            assert numbers < holding(rest, part)


def comparisons(f: Formula) -> set[Compare]:
    if isinstance(f, Compare):
        return {f}
    return {a for part in f.parts for a in comparisons(part)} if isinstance(f, And | Or) else set()


@pytest.mark.parametrize("seed", range(24))
def test_implication_and_minimal_sets_agree_with_brute_force(seed: int) -> None:
    check(seed)


def test_values_of_counterexamples() -> None:
    theory = Comparisons(program())
    red, some = (
        Compare(left=COLOR, operator="=", right=("red",)),
        Compare(left=COLOR, operator="in", right=("red", "blue")),
    )
    assert theory.values([some], [red]) == {COLOR: "blue"}
    assert theory.values([red], [some]) is None
    assert theory.values([], [red]) == {}
    in_tags = Compare(left=COLOR, operator="in", right=TAGS)
    assert theory.values([red, in_tags]) == {COLOR: "red", TAGS: ["red"]}
    chain = [
        Compare(left=RANK, operator="<", right=LEVEL),
        Compare(left=LEVEL, operator="<=", right=(1,)),
    ]
    assert theory.values(chain) == {RANK: 0, LEVEL: 1}
    assert theory.follows(chain, Compare(left=RANK, operator="=", right=(0,)))


def test_what_contradicts_is_looked_for_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal inputs take an equal part of the budget in each process, where sets have an order of their own."""
    operators: tuple[Literal["<", "=", ">"], ...] = ("<", "=", ">")
    compares = [Compare(left=LEVEL, operator=is_so, right=(number,)) for is_so, number in product(operators, (1, 2, 3))]
    asked: list[tuple[list[Compare], list[Compare]]] = []

    def record(_: Comparisons, true: list[Compare], false: list[Compare]) -> None:
        asked.append((true, false))

    monkeypatch.setattr(Comparisons, "conflict", record)
    solver = ImplicationChecker(program()).solver
    literals = [solver.literal(compare) for compare in compares]
    assert solver.possible([literals[1], -literals[3], literals[8]])
    ((true, false),) = asked
    assert true == [compare for compare in compares if compare in true]
    assert false == [compare for compare in compares if compare in false]
    assert {*true, *false} == {*compares}
