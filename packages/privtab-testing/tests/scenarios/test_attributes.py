"""Cells, faults and cases of policies with attributes."""

from __future__ import annotations

import dataclasses
from itertools import islice

import generated_programs
import pytest
import worlds
from seeds import seeds
from shop_policy import Reads, Refuses, failed

from privtab.base import NOT_SET, Entity, Request, Undecided
from privtab.ir import (
    RESOURCE,
    Compare,
    Has,
    Leaf,
    Member,
    Owner,
    Target,
    asked_condition,
    canonical_form,
    reached_atoms,
)
from privtab.reference import Reference
from privtab.state import StateNames
from privtab_analysis.rights import Right, about
from privtab_testing.scenarios.callers import smallest
from privtab_testing.scenarios.generated import Caller, CallerStates
from privtab_testing.scenarios.held_sets import comparison, is_comparison
from privtab_testing.scenarios.mutants import Mutants
from privtab_testing.scenarios.needs import Callers
from privtab_testing.scenarios.prove import Scoring, coverage, observe, score, suggested
from privtab_testing.scenarios.suggest import RequestNames

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item: }}
privileges: [READ]
attributes:
  user: {rank: {integer: [0, 9], from: request}, badges: {set: [red, blue]}, team: text}
  entity: {color: {enum: [red, blue, gray], on: [item]}, team: {text: true, on: [item]}}
  request: {mfa: bool}
tables:
  item:
    open: READ (item) and user.team = entity.team
    see: entity.color in {red, gray} or user.rank > 3
    sell: entity.color in user.badges and request.mfa
"""
STATE = """\
state:
  grants:
    - {grantee: user:ann, effect: allow, privilege: READ, entity: "item:s/a"}
    - {grantee: user:ben, effect: allow, privilege: READ, entity: "item:s/a"}
  attributes:
    - {user: ann, attribute: team, value: one}
    - {user: cem, attribute: team, value: one}
    - {entity: "item:s/a", attribute: team, value: one}
    - {entity: "item:s/a", attribute: color, value: red}
    - {entity: "item:s/b", attribute: color, value: blue}
    - {entity: "item:s/c", attribute: color, value: gray}
    - {user: ann, attribute: badges, value: red}
"""
CASES = """\
cases:
  - {user: ann, action: open, resource: "item:s/a", decision: allow}
  - {user: ben, action: open, resource: "item:s/a", decision: deny}
  - {user: cem, action: open, resource: "item:s/a", decision: deny}
  - {user: dan, action: open, resource: "item:s/b", decision: deny}
  - {user: ann, action: see, resource: ["item:s/a", "item:s/c"], decision: allow}
  - {user: ann, action: see, resource: "item:s/b", decision: deny, attributes: {user: {rank: 3}}}
  - {user: ann, action: see, resource: "item:s/b", decision: allow, attributes: {user: {rank: 4}}}
  - {user: ann, action: sell, resource: "item:s/a", decision: allow, attributes: {request: {mfa: true}}}
  - {user: ann, action: sell, resource: "item:s/a", decision: deny, attributes: {request: {mfa: false}}}
  - {user: ann, action: sell, resource: "item:s/a", decision: deny}
  - {user: ann, action: sell, resource: "item:s/b", decision: deny, attributes: {request: {mfa: true}}}
  - {user: ann, action: sell, resource: "item:s/b", decision: deny}
"""


ONE_CASE = """\
cases:
  - {user: dan, action: open, resource: "item:s/b", decision: deny}
"""


def test_cases_prove_every_cell_and_notice_every_fault(reads: Reads) -> None:
    plan = reads(STATE + CASES, POLICY)
    observed = observe(plan, plan.cases)
    for case in plan.cases:
        assert Reference(plan.program, plan.worlds[case.world]).decide(case.request).allowed is case.expected.allowed
    assert [cell.text for cell in coverage(plan, observed).untested] == []
    assert [mutant.text for mutant in score(plan, observed).survived] == []


def test_faults_change_comparisons(reads: Reads) -> None:
    plan = reads(STATE + CASES.replace("{user: {rank: 4}}", "{user: {rank: 9}}").replace("rank: 3", "rank: 0"), POLICY)
    found = [mutant.text for rule in plan.rules.values() for mutant in Mutants(plan.program).of(rule)]
    assert "`user.rank >= 3` for `user.rank > 3`" in found
    assert "`color (item) in {gray}` for `color (item) in {red, gray}`" in found
    assert "`color (item) in {red, gray, blue}` for `color (item) in {red, gray}`" in found
    assert "`request.mfa = false` for `request.mfa = true`" in found
    assert [mutant.text for mutant in score(plan, observe(plan, plan.cases)).survived] == [
        "`user.rank >= 3` for `user.rank > 3`"
    ]


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        (
            "request.mfa and (READ (item) or request.mfa = false)",
            {
                "allowed by READ (item), request.mfa = true",
                "denied without READ (item), though with request.mfa = true",
                "denied without request.mfa = true, though with READ (item)",
                "denied to callers who hold none of it",
            },
        ),
        (
            # Whoever has a rank above 5 has one above 3, and then READ suffices.
            "READ (item) and user.rank > 3 or user.rank > 5",
            {
                "allowed by READ (item), user.rank > 3",
                "allowed by user.rank > 5",
                "denied without READ (item), though with user.rank > 3",
                "denied without user.rank > 3, though with READ (item)",
                "denied without user.rank > 5",
                "denied to callers who hold none of it",
            },
        ),
        (
            "READ (item) and (user.team = entity.team or user.team = one and entity.team = one)",
            {
                "allowed by READ (item), user.team = team (item)",
                "denied without READ (item), though with user.team = team (item)",
                "denied without user.team = team (item), though with READ (item)",
                "denied to callers who hold none of it",
            },
        ),
    ],
)
def test_cells_that_no_values_prove_are_not_counted(reads: Reads, condition: str, cells: set[str]) -> None:
    plan = reads(ONE_CASE, POLICY.replace("entity.color in {red, gray} or user.rank > 3", condition))
    found = [cell.text for cell in coverage(plan, {}).cells if cell.rule.operation == "see"]
    assert set(found) == cells


ROWS = """\
    list: READ (item)
    move: {with: {to: item}, requires: "user.rank >= 2 and (READ (to) or to.color = red and to.team = entity.team)"}
    sort: 'user.rank <= entity.size and user.team in {one, "two or more"}'
"""


def test_suggested_needs_prove_every_cell_and_notice_every_fault(reads: Reads) -> None:
    size = "on: [item]}, size: {integer: [0, 5], on: [item], from: [state, request]}}\n  request:"
    policy = POLICY.replace("on: [item]}}\n  request:", size) + ROWS
    plan = reads(ONE_CASE, policy)
    text = suggested(plan, coverage(plan, {}), None)
    assert "user.team = team (item:s/i)" in text
    plan = reads(text, policy)
    assert failed(plan) == []
    observed = observe(plan, plan.cases)
    assert [cell.text for cell in coverage(plan, observed).untested] == []
    assert [mutant.text for mutant in score(plan, observed).survived] == []
    assert len(plan.worlds) > 1


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        ("open", '[[READ (item:s/a), "user.team = team (item:s/a)"]]', "[[READ (item:s/a)]]"),
        (
            "see",
            '[["color (item:s/a) in {red, gray}"], [user.rank > 3]]',
            '[["color (item:s/a) = red"], [user.rank > 3]]',
        ),
        (
            "see",
            '[["color (item:s/a) in {red, gray}"], [user.rank > 3]]',
            '[["color (item:s/a) in {red, gray}"], [user.rank >= 3]]',
        ),
        ("see", '[["color (item:s/a) = red"], ["color (item:s/a) = gray"], [user.rank >= 4]]', "[[user.rank > 3]]"),
        ("sell", '[["color (item:s/a) in user.badges", request.mfa]]', '[["color (item:s/a) in user.badges"]]'),
        ("sell", '[["color (item:s/a) in user.badges", request.mfa = true]]', "[[request.mfa]]"),
    ],
)
def test_needs_compare_attributes(reads: Reads, row: str, right: str, wrong: str) -> None:
    assert failed(reads(f'needs: [{{ask: "{row} item:s/a", by: {right}}}]', POLICY)) == []
    assert failed(reads(f'needs: [{{ask: "{row} item:s/a", by: {wrong}}}]', POLICY)) != []


def test_wrong_comparisons_of_needs_are_findings(refuses: Refuses) -> None:
    wrong = {
        "user.teams = one": "unknown attribute `teams` of the user",
        "size (item:s/a) = 3": "unknown attribute `size` of a `item`",
        "color (store:s) = red": "unknown attribute `color` of a `store`",
        "color (item:s/a) = pink": "`color (item:s/a) = pink` compares what cannot be compared",
        "color (item:s/a) < red": "`color (item:s/a) < red` compares what cannot be compared",
        "user.badges = red": "`user.badges = red` compares what cannot be compared",
        "user.rank = request.mfa": "`user.rank = request.mfa` compares what cannot be compared",
        "user.team = ]": "`]` is no constant",
        "color (items:s/a) = red": "unknown entity type `items`",
    }
    entries = "".join(f'  - {{ask: "see item:s/a", by: [["{text}"]]}}\n' for text in wrong)
    assert [d.message for d in refuses(f"needs:\n{entries}", POLICY)] == list(wrong.values())


def _held(leaf: Leaf, names: RequestNames) -> Right | None:
    """What `needs` lists for an atom of a minimal set."""
    if not isinstance(leaf, Compare):
        return about(leaf, names.key) if isinstance(leaf, Has | Owner | Member) else None
    text = names.atom(leaf)
    assert is_comparison(text)
    found = comparison(names.program, StateNames(names.program), text)
    assert isinstance(found, Compare), (text, found)
    return found


@pytest.mark.parametrize("seed", seeds(range(40), quick=3))
def test_callers_of_generated_conditions_are_decided_as_expected(seed: int) -> None:
    program = generated_programs.program(seed, "attributes", *(("nested",) if seed % 3 == 2 else ()))
    if program.roles:
        return  # roles have privileges that these callers lack
    states = CallerStates(program, ())
    asked: list[tuple[int, Request, Caller]] = []
    for rule in program.rules.values():
        condition = asked_condition(program, rule, named=True)
        types = {slot.name: slot.types[0] for slot in rule.withs}
        if not any(isinstance(atom, Compare) for atom in reached_atoms(program, condition)) or (
            program.nests and types
        ):
            continue
        names = RequestNames(program, {RESOURCE: rule.entity, **types}, dict.fromkeys((RESOURCE, *types), 1))
        form = canonical_form(program)
        sets = form.located(form.minimal_sets(condition, frozenset(), types), {RESOURCE: 1})
        ways = [[_held(leaf, names) for leaf in atoms] for atoms in sets]
        if any(atom is None for way in ways for atom in way):
            continue
        request = Request(
            user="x",
            action=rule.operation,
            resource=Entity.parse(names.key(Target(slot=RESOURCE, type=rule.entity))),
            with_={slot: Entity.parse(names.key(Target(slot=slot, type=type_))) for slot, type_ in types.items()},
            flags=frozenset(f"{flag}{NOT_SET}" for flag in rule.required_flags),
        )
        listed = smallest(frozenset(atom for atom in way if atom is not None) for way in ways)
        callers = islice(Callers(program, request, listed).all(), 60)
        asked += [(*states.add_caller(caller, request), caller) for caller in callers]
    references = [Reference(program, state) for state in states.states()]
    for number, request, caller in asked:
        assert references[number].decide(request).allowed is caller.allowed, (request, caller)


def test_wrong_attributes_of_a_case_are_findings(refuses: Refuses) -> None:
    case = '  - {user: ann, action: see, resource: "item:s/a", decision: allow, attributes: %s}\n'
    wrong = {
        "{user: {rank: high}}": "the attribute `rank` of the user must be a whole number from 0 to 9",
        "{user: {ranks: 3}}": "unknown attribute `ranks` of the user",
        "{user: {team: one}}": "the attribute `team` of the user comes from the state, so requests do not give it",
        "{caller: {rank: 3}}": "unknown key `caller` in `attributes`",
        "{request: {mfa: 1}}": "the attribute `mfa` of the request must be true or false",
        "{with: {other: {color: red}}}": "unknown key `other` in `with` of `attributes`",
    }
    found = refuses("cases:\n" + "".join(case % written for written in wrong), POLICY)
    assert [d.message for d in found] == list(wrong.values())


@pytest.mark.parametrize("seed", seeds(range(12), quick=1))
def test_equivalent_mutants_differ_in_no_state(seed: int) -> None:
    program = generated_programs.program(seed, "attributes")
    scoring = Scoring(program, program.rules, {})
    states = [worlds.state(program, seed * 100 + number) for number in range(4)]
    references = [Reference(program, state) for state in states]
    requests = [r for r in worlds.requests(program, seed, 12) if references[0].vocabulary.complete(r.resource)]
    for key, rule in program.rules.items():
        if not any(isinstance(atom, Compare) for atom in reached_atoms(program, rule.item_condition)):
            continue
        for mutant in list(Mutants(program).of(rule))[seed % 5 :: 5]:
            try:
                if mutant.change in ("effect", "report") or not scoring.is_equivalent(mutant):
                    continue
            except Undecided:
                continue
            changed = dataclasses.replace(program, rules={**program.rules, key: mutant.rule})
            for state, reference in zip(states, references, strict=True):
                other = Reference(changed, state)
                for request in requests:
                    if (request.resource.type, request.action) == key:
                        answers = reference.decide(request).allowed, other.decide(request).allowed
                        assert answers[0] is answers[1], (mutant.text, request)
