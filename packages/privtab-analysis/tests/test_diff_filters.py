"""Differences of row filters and masks: exact, since the first whose condition holds is what counts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from seeds import seeds

from privtab import model
from privtab.base import Entity, GivenAttributes, Request, SourceFile
from privtab.ir import Program
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.reference import Reference
from privtab.state import Grant, State
from privtab_analysis.diff import Diff, Verdict, diff
from privtab_analysis.state_diff import state_diff

HEAD = """\
privtab: 1
system: lake
version: "1"
dialect: trino
entities: {schema: {table: }}
privileges: [A, B, C]
attributes: {request: {mode: {enum: [x, y]}}, user: {badge: bool}}
semantics: {inheritance: down, deny: overrides}
tables: {table: {load: A (table)}}
"""
CELLS = (
    "A (table)",
    "B (table)",
    "C (schema)",
    "A (table) and B (table)",
    "A (schema) or C (table)",
    "can load (table)",
    "A + B (table) or C (table)",
    "anyone",
    "B (table) and request.mode = x",
    "user.badge",
)
ENTITIES = (Entity("schema", "s"), Entity("table", "s/t"))
GRANTS = [
    Grant(grantee="user:u", effect="allow", privilege=privilege, entity=entity)
    for privilege in "ABC"
    for entity in ENTITIES
] + [Grant(grantee="user:u", effect="deny", privilege=privilege, entity=ENTITIES[1]) for privilege in "ABC"]

MODES = {mode: GivenAttributes(request={"mode": mode} if mode else {}) for mode in ("", "x", "y")}


def program(filters: Sequence[tuple[str, str, str]]) -> Program:
    listed = "".join(f"      {name}: {{requires: '{cell}', sql: '{sql}'}}\n" for name, cell, sql in filters)
    text = HEAD + ("types:\n  table:\n    row_filters:\n" + listed if filters else "")
    tables, found = syntax.read_policy(SourceFile.of("p.yaml", text))
    assert tables is not None, found
    policy, more = model.resolve(tables)
    assert policy is not None, [*found, *more]
    return lower(policy)


def verdicts(found: Diff) -> dict[str, Verdict]:
    return {row.operation: row.verdict for row in found.rows if row.operation != "load"}


def outcomes(side: Program) -> Iterator[tuple[object, str | None]]:
    """The filter that applies, in every state and for every request that could matter."""
    names = [one.name for one in side.filters]
    for chosen in product((False, True), repeat=len(GRANTS)):
        state = State(grants=tuple(grant for grant, there in zip(GRANTS, chosen, strict=True) if there))
        reference = Reference(side, state)
        yield chosen, next((name for name in names if reference.decide(request(name)).allowed), None)


def request(name: str) -> Request:
    return Request(user="u", action=f"row_filter.{name}", resource=ENTITIES[1])


def drawn(rng: random.Random) -> list[tuple[str, str, str]]:
    names = rng.sample(["first", "second", "third"], k=rng.randint(1, 3))
    return [(name, rng.choice(CELLS[:8]), rng.choice("ab")) for name in names]


@pytest.mark.parametrize("seed", seeds(range(12), quick=5))
def test_verdicts_are_those_of_trying_every_state(seed: int) -> None:
    rng = random.Random(seed)
    sides = drawn(rng), drawn(rng)
    if rng.random() < 0.5:  # the same names, in the same order, or in another
        again = [(name, rng.choice([cell, rng.choice(CELLS[:8])]), sql) for name, cell, sql in sides[0]]
        sides = sides[0], rng.sample(again, k=len(again)) if rng.random() < 0.5 else again
    before, after = map(program, sides)
    found = verdicts(diff(before, after))
    texts = [{one.name: one.sql for one in side.filters} for side in (before, after)]
    more, less, other = set(), set(), set()
    for (state, old), (same, new) in zip(outcomes(before), outcomes(after), strict=True):
        assert state == same
        if old != new:
            more.add(new)
            less.add(old)
        elif old is not None and texts[0][old] != texts[1][old]:
            other.add(old)
    for name in texts[0].keys() & texts[1].keys():
        expected = {
            (False, False): Verdict.EQUAL,
            (True, False): Verdict.WIDER,
            (False, True): Verdict.NARROWER,
            (True, True): Verdict.INCOMPARABLE,
        }[name in more, name in less]
        verdict = found[f"row_filter.{name}"]
        assert verdict is (Verdict.INCOMPARABLE if name in other else expected), (name, sides)


def applying(side: Program, state: State, given: GivenAttributes) -> str | None:
    reference = Reference(side, state)
    names = [one.name for one in side.filters]
    return next((name for name in names if reference.decide(replace(request(name), attributes=given)).allowed), None)


@pytest.mark.parametrize("seed", range(30))
def test_states_differ_by_the_filters_that_apply(seed: int) -> None:
    """Whoever loses a filter may see more by the next one, whose own condition held all along."""
    rng = random.Random(seed)
    listed = [(name, rng.choice(CELLS), "a") for name in ("first", "second", "third")]
    side = program(listed)
    states = [State(grants=tuple(grant for grant in GRANTS if rng.random() < 0.5)) for _ in range(2)]
    applied = [{mode: applying(side, state, given) for mode, given in MODES.items()} for state in states]
    expected = {
        (gained, f"row_filter.{names[mode]}")
        for mode in MODES
        for gained, names, others in ((True, applied[1], applied[0]), (False, applied[0], applied[1]))
        if names[mode] is not None and names[mode] != others[mode]
    }
    found = state_diff(side, *states).access
    on_table = [
        change for change in found if change.subjects == ("user:u",) and "table:s/t" in map(str, change.entities)
    ]
    assert {
        (change.gained, change.rule.operation) for change in on_table if change.rule.operation != "load"
    } == expected
    assert all(change.rows for change in found)


@pytest.mark.parametrize(("sql", "noted"), [("x IN {groups}", True), ("TRUE", False)])
def test_values_in_sql_are_said_not_to_be_compared(sql: str, *, noted: bool) -> None:
    side = program([("only", "A (table)", sql)])
    found = state_diff(side, State(), State(memberships=(("u", "g"),)))
    assert [note.startswith("values that stand in the SQL") for note in found.notes] == [True] * noted


def test_who_loses_a_filter_is_shown() -> None:
    before = program([("all_rows", "A (table)", "TRUE"), ("eu_only", "B (table)", "region = 1")])
    after = program([("all_rows", "A (table) or B (table)", "TRUE"), ("eu_only", "B (table)", "region = 1")])
    found = diff(before, after)
    assert verdicts(found) == {"row_filter.all_rows": Verdict.WIDER, "row_filter.eu_only": Verdict.NARROWER}
    [lost] = next(row for row in found.rows if row.operation == "row_filter.eu_only").witnesses
    assert (lost.shows, lost.before, lost.after) == ("narrower", "allow", "deny")
    assert found.rows[-1].because == ("row_filter.all_rows, which is tried before",)
    assert [grant["privilege"] for grant in lost.state["grants"]] == ["B"]


@pytest.mark.parametrize(
    ("before", "after", "parts", "verdict"),
    [
        ([("a", "A (table)", "x")], [("a", "A (table)", "y")], ("sql",), Verdict.INCOMPARABLE),
        (
            [("a", "A (table)", "x"), ("b", "B (table)", "y")],
            [("b", "B (table)", "y"), ("a", "A (table)", "x")],
            ("order",),
            Verdict.NARROWER,
        ),
        (
            [("a", "B (table) and request.mode = x", "x"), ("b", "B (table) and request.mode = y", "y")],
            [("b", "B (table) and request.mode = y", "y"), ("a", "B (table) and request.mode = x", "x")],
            ("order",),
            Verdict.EQUAL,
        ),
    ],
)
def test_text_and_order(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], parts: tuple[str, ...], verdict: Verdict
) -> None:
    row = next(row for row in diff(program(before), program(after)).rows if row.operation == "row_filter.a")
    assert (row.parts, row.verdict) == (parts, verdict)
    assert bool(row.witnesses) is (verdict is not Verdict.EQUAL)
    if parts == ("sql",):
        assert (row.witnesses[0].effects_before, row.witnesses[0].effects_after) == (("x",), ("y",))


def test_comparisons_of_earlier_filters_do_not_hold_in_a_witness() -> None:
    before = program([("a", "user.badge", "x"), ("b", "B (table)", "y")])
    after = program([("a", "user.badge", "x"), ("b", "B (table) and C (table)", "y")])
    row = next(row for row in diff(before, after).rows if row.operation == "row_filter.b")
    assert row.verdict is Verdict.NARROWER
    assert "attributes" not in row.witnesses[0].state


def test_a_type_without_filters_hides_nothing() -> None:
    filters = [("a", "A (table)", "x")]
    [gone] = diff(program(filters), program([])).declared
    assert (gone.name, gone.verdict, gone.details[0].what) == ("table", Verdict.WIDER, "row_filters")
    [new] = diff(program([]), program(filters)).declared
    assert new.verdict is Verdict.NARROWER
