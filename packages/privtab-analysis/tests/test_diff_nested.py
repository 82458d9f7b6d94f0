"""Comparisons of policies in which a type nests: exact over every number of levels, with witnesses that have as many as it takes."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import generated_programs
import pytest
import worlds

from privtab.base import InvalidRequest, Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import State, from_tables, validate
from privtab_analysis.diff import RowChange, Verdict, diff

LAKE = """
privtab: 1
system: lake
version: '1'
entities: {{catalog: {{namespace: {{table:}}}}}}
types: {types}
privileges: [USE, READ]
semantics: {{inheritance: {inheritance}, deny: {deny}, owner: {{kinds: [user]{holds}}}}}
tables:
  table:
    load: {load}
  namespace:
    create: {{requires: {create}, creates: true}}
"""
NESTED = "{namespace: {nested: true}}"


def lake(
    load: str = "READ (table)",
    create: str = "USE (parent)",
    *,
    types: str = NESTED,
    inheritance: str = "down",
    deny: str = "overrides",
    holds: str = "",
) -> Program:
    text = LAKE.format(load=load, create=create, types=types, inheritance=inheritance, deny=deny, holds=holds)
    program, found = generated_programs.read(text)
    assert program is not None, found
    return program


def change(before: Program, after: Program, name: str = "table/load") -> RowChange:
    return next(row for row in diff(before, after).rows if row.name == name)


@pytest.mark.parametrize(
    ("before", "after", "verdict", "witness"),
    [
        ("USE (namespace)", "USE (any namespace)", Verdict.WIDER, "catalog1/namespace1/namespace1_2/table1"),
        ("USE (any namespace)", "USE (every namespace)", Verdict.NARROWER, "catalog1/namespace1/namespace1_2/table1"),
        ("USE (namespace)", "USE (first namespace)", Verdict.INCOMPARABLE, "catalog1/namespace1/namespace1_2/table1"),
        ("USE (every namespace)", "USE (every namespace) and USE (first namespace)", Verdict.EQUAL, None),
    ],
)
def test_a_level_counts_as_an_object_of_its_own(before: str, after: str, verdict: Verdict, witness: str | None) -> None:
    row = change(lake(before), lake(after))
    assert row.verdict is verdict
    assert {w.request.resource.id for w in row.witnesses} == ({witness} if witness else set())


def test_without_denials_what_is_held_on_the_first_level_is_held_on_every_one() -> None:
    first, every = "USE (first namespace)", "USE (every namespace)"
    assert change(lake(first, deny="none"), lake(every, deny="none")).verdict is Verdict.EQUAL
    assert change(lake(first), lake(every)).verdict is Verdict.NARROWER


def test_a_type_that_nests_now_has_one_level_in_the_other_policy() -> None:
    found = diff(lake(create="USE (catalog)", types="{}"), lake(create="USE (catalog)"))
    assert [(d.name, d.details[0].what, d.details[0].before, d.details[0].after) for d in found.declared] == [
        ("namespace", "nested", "no", "16 levels")
    ]
    rows = {row.name: row for row in found.rows}
    [witness] = rows["table/load"].witnesses
    assert (rows["table/load"].verdict, witness.before, witness.after) == (Verdict.WIDER, "invalid", "allow")
    assert witness.request.resource.id == "catalog1/namespace1/namespace1_2/table1"
    # Where the type nests, a call without the last name ends with `/`; where it does not, it may.
    witnesses = rows["namespace/create"].witnesses
    assert {w.request.resource.id for w in witnesses} == {"catalog1", "catalog1/namespace1/namespace1_2"}


def test_more_levels_than_before_are_more_requests() -> None:
    row = change(lake(types="{namespace: {nested: 3}}"), lake(types="{namespace: {nested: 5}}"))
    assert row.verdict is Verdict.WIDER
    [witness] = row.witnesses
    assert witness.request.resource.id.count("/") == 5
    assert (witness.before, witness.after) == ("invalid", "allow")


def test_a_privilege_by_ownership_of_a_level_that_no_condition_names() -> None:
    owners = "owner (catalog) or owner (first namespace) or owner (namespace)"
    before, after = (
        lake(c, deny="none", holds=", holds: [USE]") for c in ("USE (namespace)", f"{owners} or READ (namespace)")
    )
    assert change(before, after).verdict is Verdict.INCOMPARABLE


def test_inheritance_that_one_policy_lacks() -> None:
    row = change(
        lake("READ (any namespace)", deny="none"), lake("READ (any namespace)", deny="none", inheritance="none")
    )
    assert row.verdict is Verdict.NARROWER
    [witness] = row.witnesses
    assert [grant["entity"] for grant in witness.state["grants"]] == ["catalog:catalog1"]


EDITS = (
    *(
        (a, b)
        for words in (("first mid", "mid", "any mid", "every mid"), (" and ", " or "))
        for a in words
        for b in words
    ),
    ("inheritance: down", "inheritance: none"),
    ("deny: overrides", "deny: none"),
    ("nested: true", "nested: 2"),
    ("nested: 4", "nested: 3"),
    (".hidden = false", ".hidden = true"),
    (" < ", " <= "),
    ("in {red, gray}", "in {red}"),
)


def features(seed: int) -> tuple[str, ...]:
    """What the world of a seed has."""
    return ("nested", "implies", *(("attributes",) if seed % 2 else ()), *(("below",) if seed % 3 == 2 else ()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 101])
def test_no_state_shows_what_the_verdict_denies(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, id=why, marks=mark)
        for seed, why, mark in (
            (8868090001, "comparisons in one form of a path that follow from those in another", pytest.mark.long),
            (8868030015, "an optional object that is left out, where places are looked for", pytest.mark.long),
            (8868050010, "a call without a name on a type at the root", pytest.mark.long),
            (8868040013, "a privilege held below whose implied ones are denied there", pytest.mark.slow),
        )
    ],
)
def test_worlds_that_had_no_witness(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_no_state_shows_what_the_verdict_denies_in_many_worlds(seed: int, search_seed: int) -> None:
    check(search_seed + seed)


def check(seed: int) -> None:
    """Witnesses are checked by the comparison itself; here, that no random state shows another difference."""
    original, changed = generated_programs.program(seed, *features(seed)), edited(seed)
    rows = {row.name: row for row in diff(original, changed).rows}
    for number in range(3):
        state = worlds.state(original, seed + number)
        sides = [reference(program, state) for program in (original, changed)]
        for request in worlds.requests(original, seed + number, 6):
            name = f"{request.resource.type}/{request.action}"
            before, after = (allowed(side, request) for side in sides)
            if before != after and (row := rows[name]).condition is not Verdict.UNKNOWN:
                assert row.condition in (Verdict.WIDER if after else Verdict.NARROWER, Verdict.INCOMPARABLE), (
                    name,
                    state,
                )


def edited(seed: int) -> Program:
    """The policy with a few changes that leave it valid."""
    rnd = random.Random(seed)
    text = worlds.policy(seed, features=features(seed))
    program = generated_programs.program(seed, *features(seed))
    for _ in range(20):
        before, after = rnd.choice(EDITS)
        places = [found.start() for found in re.finditer(re.escape(before), text)]
        if places and before != after:
            at = rnd.choice(places)
            changed, _ = generated_programs.read(candidate := text[:at] + after + text[at + len(before) :])
            text, program = (candidate, changed) if changed is not None else (text, program)
    return program


def reference(program: Program, state: State) -> Reference:
    """Without assignments within scopes, which one side may not know: to the other they also say who holds a role."""
    unscoped = replace(state, assignments=tuple(a for a in state.assignments if a.scope is None))
    return Reference(program, validate(program, from_tables(unscoped.to_tables(), "state"))[0])


def allowed(side: Reference, request: Request) -> bool:
    try:
        side.vocabulary.check(request)
    except InvalidRequest:
        return False
    return side.decide(request).allowed
