"""The verdict on every operation is what trying every state and every request says, and no witness could be smaller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import small_policies

from privtab.base import InvalidRequest, Request
from privtab.ir import Program, Rule, vocabulary
from privtab.ir.declarations import Role
from privtab.state import State
from privtab_analysis.diff import Diff, RowChange, Verdict, diff

MANY = 99


def valid(program: Program, request: Request) -> bool:
    try:
        vocabulary(program).check(request)
    except InvalidRequest:
        return False
    return True


def requests(first: tuple[Program, Rule], second: tuple[Program, Rule]) -> Iterator[Request]:
    """What either side can be asked, with the objects and flags of both and of one alone."""
    mine, theirs = small_policies.requests(*first), small_policies.requests(*second)
    yield from (*mine, *theirs)
    for a in mine:
        for b in theirs:
            if a.resource == b.resource:
                yield replace(a, with_={**b.with_, **a.with_}, flags=a.flags | b.flags)
                yield replace(a, with_={**a.with_, **b.with_}, flags=a.flags | b.flags)


def rows_of(state: State) -> int:
    """The rows but for memberships: the caller is in their group in every state that is tried."""
    tables = (state.members, state.assignments, state.grants, state.owners, state.service_admins)
    return sum(map(len, tables))


def tried(first: tuple[Program, Rule], second: tuple[Program, Rule]) -> tuple[Verdict, dict[str, int]] | None:
    """The verdict, and how many rows the smallest witness of each kind has; None where there are too many states.

    Objects that share an ancestor can do with fewer rows; witnesses are the smallest of those in which they share none.
    """
    fewest: dict[str, int] = {}
    for request in {repr(r): r for r in requests(first, second)}.values():
        accepting = [(program, rule) for program, rule in (first, second) if valid(program, request)]
        if not accepting:
            continue
        apart = not any(o.names[0] == request.resource.names[0] for o in request.with_.values() if request.resource.id)
        states = small_policies.states(accepting, request)
        if states is None:
            return None
        for state in states:
            answers = [
                valid(program, request) and small_policies.allows(program, state, request)
                for program, _ in (first, second)
            ]
            if answers[0] != answers[1]:
                shows = "wider" if answers[1] else "narrower"
                fewest[shows] = min(fewest.get(shows, MANY), rows_of(state) if apart else MANY)
    if len(fewest) == 2:
        return Verdict.INCOMPARABLE, fewest
    return (Verdict(next(iter(fewest))) if fewest else Verdict.EQUAL), fewest


def disagreements(old: Program, new: Program, counts: dict[Verdict, int]) -> Iterator[str]:
    """Every operation on which the comparison and trying differ."""
    found: Diff = diff(old, new)
    by_name: dict[str, RowChange] = {row.name: row for row in found.rows}
    for key in old.rules.keys() & new.rules.keys():
        by_trying = tried((old, old.rules[key]), (new, new.rules[key]))
        if by_trying is None:
            continue
        verdict, fewest = by_trying
        row = by_name["/".join(key)]
        counts[verdict] = counts.get(verdict, 0) + 1
        shown = {w.shows: w.rows - len(w.state.get("memberships", ())) for w in row.witnesses if w.shows != "effects"}
        if row.verdict is not verdict or shown.keys() != fewest.keys() or any(shown[k] > fewest[k] for k in shown):
            yield f"{row.name} is {row.verdict} by {shown}, trying says {verdict} by {fewest}\n{row}"


def mutations(seeds: Iterable[int]) -> Iterator[tuple[str, str]]:
    for seed in seeds:
        yield small_policies.policy(seed), small_policies.policy(seed, changes=1 + seed % 3, change_seed=seed)


def compare(pairs: Iterator[tuple[str, str]]) -> dict[Verdict, int]:
    counts: dict[Verdict, int] = {}
    for old, new in pairs:
        old_program, new_program = small_policies.program(old), small_policies.program(new)
        if old_program is None or new_program is None:
            continue
        wrong = [*disagreements(old_program, new_program, counts), *disagreements(new_program, old_program, counts)]
        assert not wrong, f"{wrong[0]}\n{old}\n{new}"
    return counts


@pytest.mark.slow
def test_changes_of_small_policies() -> None:
    counts = compare(mutations((1, 3, 4, 5, 7)))
    assert {*counts} == {Verdict.EQUAL, Verdict.WIDER, Verdict.NARROWER, Verdict.INCOMPARABLE}, counts
    assert min(counts.values()) > 3, counts


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_changes_of_many_small_policies(search_seed: int, first: int) -> None:
    compare(mutations(range(search_seed + first, search_seed + first + 100)))


HEAD = """\
privtab: 1
system: small
version: "1"
privileges: [READ, WRITE]
"""
TREES = {
    "plain": "entities: {top: {mid: {low: }}, far: {low2: }}",
    "moved, as deep": "entities: {top: {side: {low: }, mid: }, far: {low2: }}",
    "moved, deeper": "entities: {top: {mid: {side: {low: }}}, far: {low2: }}",
    "moved up": "entities: {top: {mid: , low: }, far: {low2: }}",
    "single": "entities: {top: {mid: {low: }}, far: {low2: }}\ntypes: {low: {single: true}}",
    "another root": "entities: {far: {low2: , top: {mid: {low: }}}}",
}
SEMANTICS = (
    "semantics: {inheritance: down, deny: overrides, owner: {holds: [WRITE]}}",
    "semantics: {inheritance: down}",
    "semantics: {deny: overrides, owner: {}}",
)
ROWS = """\
tables:
  low:
    read: READ (low)
    see: READ (low) or READ (top)
    write: WRITE (low) and READ (top)
    list: {requires: READ (top), each: WRITE (low)}
    make: {requires: READ (top), creates: true}
"""


KEEPER = Role(name="keeper", scopes=("mid",), grants=(("low", ("READ",)),))


@pytest.mark.parametrize(
    ("tree", "semantics"),
    [
        # Each of the semantics with one tree, and all of both in long tests.
        pytest.param(tree, text, marks=pytest.mark.slow if number == at else pytest.mark.long)
        for number, tree in enumerate(name for name in TREES if name != "plain")
        for at, text in enumerate(SEMANTICS)
    ],
)
def test_types_that_moved(tree: str, semantics: str) -> None:
    old, new = (f"{HEAD}{TREES[name]}\n{semantics}\n{ROWS}" for name in ("plain", tree))
    old_program, new_program = small_policies.program(old), small_policies.program(new)
    assert old_program is not None
    assert new_program is not None
    # Another title, so that assignments are tried too.
    old_program = replace(old_program, roles={"keeper": KEEPER})
    new_program = replace(new_program, roles={"keeper": replace(KEEPER, title="Keeper")})
    counts: dict[Verdict, int] = {}
    wrong = [*disagreements(old_program, new_program, counts), *disagreements(new_program, old_program, counts)]
    assert not wrong, wrong[0]
    assert sum(counts.values()) >= 6, counts
