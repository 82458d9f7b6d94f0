from __future__ import annotations

from itertools import chain, combinations

import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab.base import Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import State
from privtab_analysis import turns
from privtab_analysis.changes import Change, SmallestChanges, apply, order
from privtab_analysis.turns import remedies

FEATURES = (
    (),
    ("nested",),
    worlds.IN_SPARK,
    ("nested", "implies"),
    ("nested", "attributes"),
    ("below", "implies"),
    ("nested", "below", "implies"),
    ("flat", "below", "implies", "hierarchy"),
)
MOST = 8
"""Changes thought of: 256 states are tried at most."""


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 400), st.integers(0, 10_000))
def test_ways_are_those_found_by_trying_every_set_of_changes(policy: int, seed: int) -> None:
    check(policy, seed)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.integers(), st.integers())
def test_ways_in_many_worlds(policy: int, seed: int) -> None:
    check(policy, seed)


def check(policy: int, seed: int) -> None:
    program = generated_programs.program(policy, *FEATURES[policy % len(FEATURES)])
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    for request in worlds.requests(program, seed, per_rule=1):
        thought_of = all_changes(reference, state, request)
        if len(thought_of) <= MOST:
            found = {frozenset(way) for way in remedies(reference, state, request).sets}
            assert found == by_trying(program, state, request, thought_of), request


def all_changes(reference: Reference, state: State, request: Request) -> tuple[Change, ...]:
    """Every change that `ways` considers for a request."""
    if turns._is_unplaced(reference, request):
        return ()
    roles = turns.HypotheticalDecision(reference, state, request, ()).roles()
    found: set[Change] = set(roles)
    for some in turns._role_sets(roles, SmallestChanges()):
        decision = turns.HypotheticalDecision(reference, state, request, some)
        found |= {
            *decision.candidates.values(),
            *chain.from_iterable(chain.from_iterable(map(decision.atom, decision.reachable_atoms))),
        }
    return tuple(sorted(found, key=order))


def by_trying(
    program: Program, state: State, request: Request, thought_of: tuple[Change, ...]
) -> set[frozenset[Change]]:
    smallest: set[frozenset[Change]] = set()
    for size in range(len(thought_of) + 1):
        for some in combinations(thought_of, size):
            if any(known <= set(some) for known in smallest):
                continue
            if Reference(program, apply(state, request.user, some)).decide(request).allowed:
                smallest.add(frozenset(some))
    return smallest
