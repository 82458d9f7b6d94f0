"""The arrays that are made from the columns of a state say what its index says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generated_programs
import pytest
import worlds

from privtab.base import Entity
from privtab.engines import Index
from privtab.engines.build_arrays import arrays_of_index
from privtab.state import Grant, State, index_document
from privtab_spark.policies import open_policy
from privtab_spark.states import batches_of


def content(found: Index) -> dict[str, Any]:
    """What an index says, whatever numbers its privileges have."""
    bits = {found.numbers.allowed(name): f"allow {name}" for name in found.numbers._numbers}
    bits |= {bit << 1: f"deny {name[6:]}" for bit, name in bits.items()} | {1: "owner"}
    return {
        "held": {
            (type_, path, principal): {name for bit, name in bits.items() if mask & bit}
            for type_, table in found.tables.items()
            for path, holders in table.items()
            for principal, mask in holders.items()
        },
        "users": {user: set(principals) for user, principals in found.users.items()},
        "groups": {group: set(principals) for group, principals in found.groups.items()},
        "members": {(type_, path): users for type_, own in found.members.items() for path, users in own.items()},
        "within": found.within,
        "scoped": {user: {scope: set(roles) for scope, roles in own.items()} for user, own in found.scoped.items()},
        "group_scoped": {g: {scope: set(roles) for scope, roles in own.items()} for g, own in found.group_scoped.items()},
        "service_admins": found.service_admins,
    }  # fmt: skip


def same(program: Any, state: State) -> int:
    """Compare both ways; the number of entries."""
    policy = open_policy(program)
    found = Index(index_document(program, state))
    found.everyone = policy.everyone
    by_index = arrays_of_index(found, policy.vocabulary.chains)
    by_columns = batches_of(policy, state).arrays
    assert content(by_columns.index()) == content(by_index.index())
    assert len(by_columns) == len(by_index)
    return len(by_columns)


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in (20, 40))])
def test_arrays_of_columns_say_what_the_index_says(start: int) -> None:
    found = 0
    for seed in range(start, start + 20):
        program = generated_programs.program(seed)
        state = worlds.state(program, seed)
        assert not state.windows
        found += same(program, state)
    assert found > 20


def test_arrays_of_nothing_of_one_row_and_of_many_privileges() -> None:
    program = generated_programs.program(189)
    same(program, State())
    state = worlds.state(program, 189)
    for table in ("members", "memberships", "assignments", "grants", "owners", "service_admins"):
        first: dict[str, Any] = {table: getattr(state, table)[:1]}
        none: dict[str, Any] = {table: ()}
        same(program, State(**first))
        same(program, replace(state, **none))


def test_privileges_beyond_one_word_of_bits_are_kept() -> None:
    names = [f"P{number}" for number in range(80)]
    program = generated_programs.program(189)
    first = next(iter(program.privileges.values()))
    program = replace(program, privileges={**program.privileges, **{name: replace(first, name=name) for name in names}})
    type_ = next(iter(program.entities))
    grants = tuple(
        Grant(grantee="user:ann", effect=effect, privilege=name, entity=Entity(type_, "x"))
        for name in names
        for effect in ("allow", "deny")
    )
    assert same(program, State(grants=grants)) == 1
