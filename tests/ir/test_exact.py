"""What `ImplicationChecker` says of two conditions is what trying every state says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import small_policies
from counterexamples import counterexample

from privtab.base.request import Request
from privtab.ir.canonical import minimal_sets
from privtab.ir.exact import ImplicationChecker
from privtab.ir.nodes import Has, Program, Rule, Target
from privtab.pipeline import load_program
from privtab_analysis.diff.witness_builder import WitnessBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to ask for a rule: flags, types of the objects, and whether the resource is named."""

    flags: frozenset[str]
    types: tuple[tuple[str, str], ...]
    unnamed: bool


def setting(program: Program, rule: Rule, request: Request) -> Setting:
    return Setting(
        flags=request.flags,
        types=tuple((w.name, request.with_[w.name].type) for w in rule.withs),
        unnamed=len(request.resource.names) < program.depth(rule.entity),
    )


def by_enumeration(first: tuple[Program, Rule], second: tuple[Program, Rule]) -> dict[Setting, bool] | None:
    """For each kind of request, whether every state that the first allows is allowed by the second; None if there are too many."""
    found: dict[Setting, bool] = {}
    keys = {
        r
        for p, rule in (first, second)
        for r in map(_Key, small_policies.requests(p, rule))
        if _both(r.request, first, second)
    }
    for request in (key.request for key in keys):
        states = small_policies.states([first, second], request)
        if states is None:
            return None
        key = setting(*first, request)
        implied = all(
            small_policies.allows(second[0], state, _for_rule(request, second[1]))
            for state in states
            if small_policies.allows(first[0], state, _for_rule(request, first[1]))
        )
        found[key] = found.get(key, True) and implied
    return found


class _Key:
    """A request as a member of a set."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.text = repr(request)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.text == self.text


def _for_rule(request: Request, rule: Rule) -> Request:
    return Request(
        user=request.user,
        action=rule.operation,
        resource=request.resource,
        groups=request.groups,
        with_=request.with_,
        flags=request.flags,
    )


def _both(request: Request, *pairs: tuple[Program, Rule]) -> bool:
    """Whether the rules of both pairs take the request."""
    return all(
        {w.name for w in rule.withs} == set(request.with_)
        and all(request.with_[w.name].type in w.types for w in rule.withs)
        and (rule.unnamed or len(request.resource.names) == program.depth(rule.entity))
        for program, rule in pairs
    )


def by_checker(first: tuple[Program, Rule], second: tuple[Program, Rule], setting: Setting) -> bool:
    """What `ImplicationChecker` says; its counterexample, given names, must be one to the reference meaning too."""
    (program, f), (other_program, g) = first, second
    first_condition, second_condition = (
        one.call_condition if setting.unnamed else one.item_condition for one in (f, g)
    )
    exact = ImplicationChecker(program, None if program is other_program else other_program)
    types = dict(setting.types)
    unnamed = f.entity if setting.unnamed else None
    facts = counterexample(exact, first_condition, second_condition, setting.flags, types, unnamed=unnamed)
    if facts is not None:
        scene = WitnessBuilder(program, f, types, facts, unnamed=setting.unnamed)
        request, state = scene.request(setting.flags), scene.state()
        assert small_policies.allows(program, small_policies.known(program, state), _for_rule(request, f)), (
            facts,
            state,
        )
        assert not small_policies.allows(
            other_program, small_policies.known(other_program, state), _for_rule(request, g)
        ), (facts, state)
    assert (facts is None) == exact.implies(first_condition, second_condition, setting.flags, types, unnamed=unnamed)
    return facts is None


def differences(pairs: Iterator[tuple[tuple[Program, Rule], tuple[Program, Rule]]]) -> tuple[list[str], dict[str, int]]:
    """Every disagreement, and how often which verdict was right."""
    wrong: list[str] = []
    counts = {"implied": 0, "not implied": 0, "passed over": 0}
    for first, second in pairs:
        enumerated = by_enumeration(first, second)
        if enumerated is None:
            counts["passed over"] += 1
            continue
        for setting, implied in enumerated.items():
            counts["implied" if implied else "not implied"] += 1
            if by_checker(first, second, setting) != implied:
                wrong.append(
                    f"{first[1].id} => {second[1].id} at {setting}: trying says {implied}\n{first[1]}\n{second[1]}"
                )
    return wrong, counts


def within(seeds: range, *, implies: bool = False) -> Iterator[tuple[tuple[Program, Rule], tuple[Program, Rule]]]:
    """Pairs of rules of one policy that speak of the same type."""
    for seed in seeds:
        program = small_policies.program(small_policies.policy(seed, implies=implies))
        assert program is not None
        rules = list(program.rules.values())
        yield from (
            ((program, first), (program, second))
            for first in rules
            for second in rules
            if first is not second and first.entity == second.entity
        )


def between(seeds: range, *, implies: bool = False) -> Iterator[tuple[tuple[Program, Rule], tuple[Program, Rule]]]:
    """The same rule in a policy and in one that was changed a little, both ways."""
    for seed in seeds:
        old = small_policies.program(small_policies.policy(seed, implies=implies))
        changed = small_policies.policy(seed, changes=1 + seed % 3, change_seed=seed, implies=implies)
        new = small_policies.program(changed)
        assert old is not None
        for key, rule in old.rules.items():
            if new is not None and key in new.rules:
                yield (old, rule), (new, new.rules[key])
                yield (new, new.rules[key]), (old, rule)


@pytest.mark.slow
@pytest.mark.parametrize("implies", [False, True])
def test_within_a_policy(implies: bool) -> None:
    wrong, counts = differences(within(range(40), implies=implies))
    assert not wrong, wrong[0]
    assert min(counts["implied"], counts["not implied"]) > 10, counts


@pytest.mark.slow
@pytest.mark.parametrize("implies", [False, True])
def test_between_two_policies(implies: bool) -> None:
    wrong, counts = differences(between(range(8), implies=implies))
    assert not wrong, wrong[0]
    assert min(counts["implied"], counts["not implied"]) > 10, counts


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 150))
@pytest.mark.parametrize("implies", [False, True])
def test_within_many_policies(search_seed: int, first: int, implies: bool) -> None:
    wrong, _ = differences(within(range(search_seed + first, search_seed + first + 150), implies=implies))
    assert not wrong, wrong[0]


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 150))
@pytest.mark.parametrize("implies", [False, True])
def test_between_many_policies(search_seed: int, first: int, implies: bool) -> None:
    wrong, _ = differences(between(range(search_seed + first, search_seed + first + 150), implies=implies))
    assert not wrong, wrong[0]


ROOTED = """
privtab: 1
system: shop
version: "1"
entities: {hall: {shelf: {}, chest: {}}}
types: {hall: {single: true}}
privileges: {READ: {}, WRITE: {}}
semantics: {inheritance: down, deny: none, owner: none}
tables:
  shelf:
    swap: {with: {to: chest}, requires: READ (hall) and WRITE (shelf) and READ (to)}
    lend: {with: {to: chest}, requires: READ (shelf) and READ (to)}
"""


def test_a_root_without_a_name_is_one_for_all_objects_of_a_request(tmp_path: Path) -> None:
    """A grant on it reaches every object, so that asking for the privilege on one of them too adds nothing."""
    path = tmp_path / "1.yaml"
    path.write_text(ROOTED, encoding="utf-8")
    program = load_program(path)
    checker = ImplicationChecker(program)
    swap, lend = program.rules["shelf", "swap"], program.rules["shelf", "lend"]
    named, other = (
        Has(privilege="READ", target=Target(slot=slot, type=type_)) for slot, type_ in (("", "hall"), ("to", "chest"))
    )
    assert checker.always_implies(swap, named, other)
    assert not checker.always_implies(lend, other, named)
    assert counterexample(checker, named, other) is None
    assert [{a.privilege for a in atoms if isinstance(a, Has)} for atoms in minimal_sets(program, swap)] == [
        {"READ", "WRITE"}
    ]
    assert all(len(atoms) == 2 for rule in (swap, lend) for atoms in minimal_sets(program, rule))
