"""Differences found as bits of numbers, for entities that are alike at once, beside those found one entity at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import generated_programs
import pytest
import worlds
from hypothesis import example, given
from hypothesis import strategies as st
from seeds import seeds

from privtab.base import Entity
from privtab.ir import Program
from privtab.state import Grant, State
from privtab.state.nodes import TABLES
from privtab_analysis.entitlements.columns import Columns
from privtab_analysis.entitlements.equivalence import EntityEquivalence
from privtab_analysis.state_diff import Comparison, StateDiff, state_diff, together
from privtab_analysis.state_diff.class_columns import ClassColumns
from privtab_analysis.state_diff.entities import EntityTree
from privtab_analysis.state_diff.masks import SubjectMasks
from privtab_analysis.state_diff.placed import placed
from privtab_analysis.state_diff.subjects import Side
from privtab_analysis.state_diff.summary import groups, totals
from privtab_analysis.state_diff.together import Change, Classes

MOST_DECIDED_AGAIN = 10_000
"""The most questions of a comparison that is made once more."""
FEATURES = ((), ("hierarchy",), ("below",), ("attributes",), worlds.FEATURES)


def changed(program: Program, state: State, seed: int, changes: int) -> State:
    """The state with some rows dropped, and some of another state added."""
    chance, other = random.Random(seed), worlds.state(program, seed + 1)
    for _ in range(changes):
        table = chance.choice(TABLES)
        rows, others = list(getattr(state, table)), getattr(other, table)
        if rows and chance.random() < 0.5:
            rows.pop(chance.randrange(len(rows)))
        elif others:
            rows.append(chance.choice(others))
        tables: Any = {table: tuple(rows)}
        state = replace(state, **tables)
    return placed(program, state)


def in_columns(program: Program, before: State, after: State) -> StateDiff:
    """The difference by classes of entities all at once, wherever columns fit, however many subjects there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassColumns, "suit", lambda _, classes: classes > 0)
        return state_diff(program, before, after)


def by_bits(program: Program, before: State, after: State) -> StateDiff:
    """The difference by classes of entities one at a time, with subjects as bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassColumns, "suit", lambda *_: False)
        return state_diff(program, before, after)


def one_by_one(program: Program, before: State, after: State) -> StateDiff:
    """The difference without numbers of bits, keys of entities, and holdings shared by both states."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassColumns, "suit", lambda *_: False)
        patch.setattr(EntityEquivalence, "key", lambda *_: None)
        patch.setattr(Side, "holds_as", lambda *_: None)
        return state_diff(program, before, after)


def by_sets(program: Program, before: State, after: State) -> StateDiff:
    """The difference by sets of subjects, once for entities that are alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassColumns, "suit", lambda *_: False)
        patch.setattr(SubjectMasks, "differences", lambda *_, **__: None)
        return state_diff(program, before, after)


@pytest.mark.parametrize("seed", seeds([*range(3), *range(4, 40), 3], quick=3))
def test_the_same_is_found_in_the_same_order(seed: int) -> None:
    program = generated_programs.program(seed, *FEATURES[seed % len(FEATURES)])
    before = placed(program, worlds.state(program, seed))
    after = changed(program, before, seed, 1 + seed % 6)
    found = by_bits(program, before, after)
    assert found == by_sets(program, before, after)
    assert found.access == one_by_one(program, before, after).access
    if Columns.fit(program):
        assert replace(in_columns(program, before, after), decided=found.decided) == found
    if found.decided > MOST_DECIDED_AGAIN:
        return
    alike = state_diff(program, before, after, alike_together=True)
    assert groups(alike) == groups(found)
    for gained in (True, False):
        assert totals(alike, gained=gained) == totals(found, gained=gained)


def test_a_limit_on_questions_ends_at_the_same_class_whether_classes_are_joined() -> None:
    limited = 0
    for seed in range(3):
        program = generated_programs.program(seed)
        before = placed(program, worlds.state(program, seed))
        after = changed(program, before, seed, 8)
        for most in (1, 10, 50, 100, 200, 400):
            found, alike = (state_diff(program, before, after, most=most, alike_together=one) for one in (False, True))
            assert groups(alike) == groups(found)
            assert (alike.undecided, alike.decided) == (found.undecided, found.decided)
            limited += bool(found.undecided and found.access)
    assert limited > 3


def test_generated_worlds_show_differences_found_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns find differences with and without `with` objects, gained and lost."""
    found: list[tuple[Classes, Change]] = []
    changes = Comparison._changed

    def counted(self: Comparison, classes: Classes, *arguments: Any, **options: Any) -> Sequence[Change]:
        of_classes = changes(self, classes, *arguments, **options)
        found.extend((classes, change) for change in of_classes)
        return of_classes

    monkeypatch.setattr(Comparison, "_changed", counted)
    monkeypatch.setattr(Comparison, "_changes", lambda *_: ())
    for seed in range(3):
        program = generated_programs.program(seed)
        before = placed(program, worlds.state(program, seed))
        in_columns(program, before, changed(program, before, seed, 8))
    assert {len(classes) > 1 for classes, _ in found} == {True, False}
    assert {change.gained for _, change in found} == {True, False}


def test_generated_worlds_have_entities_that_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    as_one = together._as_one

    def counted(run: Sequence[Classes], varying: str | None) -> Classes:
        joined.append(len(run))
        return as_one(run, varying)

    monkeypatch.setattr(together, "_as_one", counted)
    for seed in range(3):
        program = generated_programs.program(seed)
        before = placed(program, worlds.state(program, seed))
        state_diff(program, before, changed(program, before, seed, 8), alike_together=True)
    assert max(joined) > 1


def test_generated_worlds_show_differences_found_as_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rules of generated policies are decided as bits, and some of these differ."""
    monkeypatch.setattr(ClassColumns, "suit", lambda *_: False)
    answers: list[Sequence[object] | None] = []
    differences = SubjectMasks.differences

    def counted(*arguments: object, **options: bool) -> object:
        answers.append(differences(*arguments, **options))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(SubjectMasks, "differences", counted)
    for seed in range(3):
        program = generated_programs.program(seed)
        before = placed(program, worlds.state(program, seed))
        state_diff(program, before, changed(program, before, seed, 8))
    assert any(answers)
    assert answers.count(None) < len(answers) / 2


TEXTS = st.sampled_from("abcd")


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.sets(TEXTS), st.sets(TEXTS))
@example([("b", "a"), ("b", "c"), ("a", "a")], {"b"}, {"a", "d"})
@example([("a", "a"), ("a", "b")], {"a", "b", "c"}, {"a"})
@example([("a", "a")], set(), {"a"})
def test_rows_of_principals_on_entities(rows: list[tuple[str, str]], principals: set[str], on: set[str]) -> None:
    """The rows with both are found, whichever names are fewer."""
    grants = tuple(Grant(f"role:{one}", "allow", "READ", Entity("top", other)) for one, other in rows)
    side = Side(generated_programs.program(0), State(grants=grants))
    found = dict(side.rights({f"role:{name}" for name in principals}, {f"top:{path}" for path in on}))
    assert list(found["grants"]) == [n for n, row in enumerate(rows) if row[0] in principals and row[1] in on]


def test_each_entity_belongs_to_the_longest_path_that_contains_it() -> None:
    found = 0
    for seed in range(300):
        chance = random.Random(seed)
        paths = ["/".join(chance.choices(["a", "b", "b-", "b0", "b!"], k=chance.randrange(1, 4))) for _ in range(30)]
        tree = object.__new__(EntityTree)
        tree.nested, tree._levels = {"nests": "nests"}, {}
        tree.paths = {str(depth): sorted({p for p in paths[:20] if p.count("/") == depth}) for depth in range(3)}
        tree.paths |= {"": [""], "nests": sorted({*paths[:20]})}
        cuts = {"", *paths[15 : 15 + chance.randrange(1, 10)]}
        division = tree.divided(cuts)
        some = division.under([max(cuts)])
        for type_, addresses in tree.paths.items():
            classes = division.all(type_)
            belonging: dict[str, list[str]] = {}
            for address in addresses:
                around = (cut for cut in cuts if not cut or f"{address}/".startswith(f"{cut}/"))
                belonging.setdefault(max(around, key=len), []).append(address)
            divided: dict[str, list[str]] = {}
            for cut, own in classes:
                divided.setdefault(cut, []).extend(own.addresses())
                assert all(begin < end for begin, end in own.spans)
                assert all(own.spans[n][1] < later[0] for n, later in enumerate(own.spans[1:]))
                assert type_ != "nests" or len({address.count("/") for address in own.addresses()}) == 1
            assert {cut: sorted(own) for cut, own in divided.items()} == belonging
            assert [*divided] == sorted(divided)
            assert [*division.within(type_, some)] == [own for own in classes if own[0] in some]
            found += len(classes)
    assert found > 1500
