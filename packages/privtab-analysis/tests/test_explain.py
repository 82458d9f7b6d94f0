from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab import pipeline
from privtab.base import Entity, Request
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, Places, RawRow, State
from privtab.state.nodes import TABLES
from privtab_analysis.explanation import Part, RequestExplanation, explain
from privtab_analysis.provenance import Chain

TABLE = Entity("table", "m/c/s/t")
ALL_ROLES = tuple(feature for feature in worlds.FEATURES if feature != "active")


def grant(privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(
        grantee="user:ann",
        effect="deny" if effect == "deny" else "allow",
        privilege=privilege,
        entity=Entity.parse(entity),
    )


def test_every_minimal_set_is_listed_with_what_holds() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    state = State(
        members=(("ann", Entity("metalake", "m")),),
        grants=(
            grant("USE_CATALOG", "metalake:m"),
            grant("USE_SCHEMA", "schema:m/c/s"),
            grant("SELECT_TABLE", "schema:m/c/s"),
            grant("SELECT_TABLE", "table:m/c/s/t", "deny"),
        ),
    )
    why = explain(Reference(program, state), Request(user="ann", action="load", resource=TABLE))
    assert not why.decision.allowed
    assert why.decision.missing[0] == ("MODIFY_TABLE (table:m/c/s/t)",)
    assert ("deny SELECT_TABLE (table:m/c/s/t) to user:ann",) in why.decision.missing
    assert why.rule.id == "gravitino/table/load"
    assert len(why.sets) == 6


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 400), st.integers(0, 10_000))
def test_chains_are_all_the_ways_in_which_something_is_held(policy: int, seed: int) -> None:
    check(policy, seed)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.integers(), st.integers())
def test_chains_in_many_worlds(policy: int, seed: int) -> None:
    check(policy, seed)


def check(policy: int, seed: int) -> None:
    program = generated_programs.program(policy, *(ALL_ROLES if policy % 2 else ()))
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    for request in worlds.requests(program, seed, per_rule=1):
        why = explain(reference, request, state, numbered(state))
        satisfied = [parts for parts in why.sets if all(part.holds for part in parts)]
        assert bool(satisfied) == why.decision.allowed
        assert bool(why.turns) <= (not why.decision.allowed)
        for parts in satisfied:
            rows = [step for part in parts for step in part.because[0]]
            assert decide(program, only(state, (tuple(rows),)), request), "the first chain of each atom suffices"
        for part in {part for parts in why.sets for part in parts}:
            assert bool(part.denied) == bool(part.denied_by)
            assert part.holds <= bool(part.because)
            check_part(program, state, request, part)


def check_part(program: Program, state: State, request: Request, part: Part) -> None:
    """Without the first row of every chain nothing is left that gives the atom; with one chain alone it is given."""
    if not part.holds or not all(any(step.place for step in chain) for chain in part.because):
        return
    first = {key for chain in part.because for key in list(keys((chain,)))[:1]}
    after = explain(Reference(program, without(state, first)), request)
    assert not any(p.holds for parts in after.sets for p in parts if p.atom == part.atom)
    for chain in part.because:
        alone = explain(Reference(program, only(state, (chain,))), request)
        assert any(p.holds for parts in alone.sets for p in parts if p.atom == part.atom)


def numbered(state: State) -> Places:
    """Places that tell the number of each row."""
    rows = {table: tuple(RawRow("s", table, n, n, {}) for n in range(len(getattr(state, table)))) for table in TABLES}
    return Places(rows=rows)


def keys(chains: tuple[Chain, ...]) -> dict[tuple[str, int], None]:
    places = [step.place for chain in chains for step in chain]
    return {(place.table, place.row): None for place in places if place is not None}


def only(state: State, chains: tuple[Chain, ...]) -> State:
    row_keys = keys(chains)
    tables: Any = {t: tuple(r for n, r in enumerate(getattr(state, t)) if (t, n) in row_keys) for t in TABLES}
    return replace(state, **tables)


def without(state: State, gone: set[tuple[str, int]]) -> State:
    tables: Any = {t: tuple(r for n, r in enumerate(getattr(state, t)) if (t, n) not in gone) for t in TABLES}
    return replace(state, **tables)


def decide(program: Program, state: State, request: Request) -> bool:
    return Reference(program, state).decide(request).allowed


OFFICE = """
{privtab: 1, system: office, version: '1', entities: {site: {desk:}}, privileges: [USE, PAINT],
 semantics: {inheritance: down, active_roles: request},
 tables: {desk: {use: USE (desk), renovate: USE (desk) and PAINT (desk)}}}
"""


def test_roles_that_are_not_active_are_named_and_those_that_would_allow_it(tmp_path: Path) -> None:
    (tmp_path / "office.yaml").write_text(OFFICE, encoding="utf-8")
    program = pipeline.load_program(tmp_path / "office.yaml")
    roles = {"clerk": "USE", "painter": "PAINT", "idle": None}
    state = State(
        assignments=tuple(Assignment(principal="user:ann", role=role, scope=None) for role in roles),
        grants=tuple(
            Grant(grantee=f"role:{role}", effect="allow", privilege=privilege, entity=Entity("site", "s"))
            for role, privilege in roles.items()
            if privilege
        ),
    )
    reference = Reference(program, state)

    def why(action: str, *active: str) -> RequestExplanation:
        request = Request(user="ann", action=action, resource=Entity("desk", "s/d"), active_roles=active)
        return explain(reference, request, state)

    allowed = why("use", "clerk")
    assert allowed.decision.allowed
    assert allowed.inactive == ("idle", "painter")
    assert allowed.activating == ()
    assert [[part.through for part in parts] for parts in allowed.sets] == [["role:clerk"]]
    assert why("use").activating == ("clerk",)
    assert why("renovate").activating == ("clerk", "painter")
    assert why("renovate", "clerk").activating == ("painter",)
    use, paint = sorted(why("renovate", "painter").sets[0], key=lambda part: part.holds)
    assert (use.atom, use.because) == ("USE (desk:s/d)", ())
    assert [step.text for chain in paint.because for step in chain][:1] == ["PAINT granted to role:painter at site:s"]
    assert why("use", "nobody").activating == ()


def test_an_allow_is_explained_through_active_roles(tmp_path: Path) -> None:
    path = tmp_path / "office.yaml"
    path.write_text(OFFICE.replace("active_roles:", "hierarchy: [roles], active_roles:"), encoding="utf-8")
    program = pipeline.load_program(path)
    assigned_roles = [
        ("user:ann", "boss"),
        ("user:ann", "clerk"),
        ("role:boss", "helper"),
        ("role:clerk", "deputy"),
        ("role:deputy", "helper"),
    ]
    state = State(
        assignments=tuple(Assignment(principal=principal, role=role, scope=None) for principal, role in assigned_roles),
        grants=(Grant(grantee="role:helper", effect="allow", privilege="USE", entity=Entity("site", "s")),),
    )

    def rows(*active: str) -> list[list[str]]:
        request = Request(user="ann", action="use", resource=Entity("desk", "s/d"), active_roles=active)
        explained = explain(Reference(program, state), request, state)
        assert explained.decision.allowed
        return [
            [step.text for step in chain[1:]] for parts in explained.sets for part in parts for chain in part.because
        ]

    by_clerk = ["role:deputy holds role:helper", "role:clerk holds role:deputy", "ann holds role:clerk"]
    by_boss = ["role:boss holds role:helper", "ann holds role:boss"]
    assert rows("clerk") == [by_clerk]
    assert rows("boss") == [by_boss]
    # A role that the caller holds through another can be active by itself: the rows say how it is held.
    assert rows("deputy") == [by_clerk]
    assert rows("helper") == [by_boss, by_clerk]


def test_a_group_of_the_state_and_of_the_request_is_explained_with_both() -> None:
    text = """\
privtab: 1
system: world
version: "1"
entities: {top: {group: }}
privileges: [READ]
semantics: {groups: [state, request]}
tables: {group: {see: member (group)}}
"""
    program = generated_programs.lowered(text)[0]
    state = State(memberships=(("ann", "staff"),))
    request = Request(user="ann", action="see", resource=Entity("group", "t/staff"), groups=("staff",))
    ((part,),) = explain(Reference(program, state), request, state).sets
    assert [[step.text for step in chain] for chain in part.because] == [
        ["ann is in group:staff"],
        ["the request says that ann is in group:staff"],
    ]


def test_below_the_row_that_the_reason_names_comes_first() -> None:
    text = """\
privtab: 1
system: world
version: "1"
entities: {top: {leaf: }}
privileges: [READ]
semantics: {inheritance: down, owner: {holds: [READ]}}
tables: {top: {see: READ (top or below)}}
"""
    program = generated_programs.lowered(text)[0]
    state = State(grants=(grant("READ", "leaf:t/a"),), owners=((Entity("leaf", "t/b"), "user:ann"),))
    request = Request(user="ann", action="see", resource=Entity("top", "t"))
    ((part,),) = explain(Reference(program, state), request, state).sets
    assert part.through == "owner user:ann"
    assert [chain[0].kind for chain in part.because] == ["owner", "grant"]
