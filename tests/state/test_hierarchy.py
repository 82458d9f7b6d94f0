"""Groups in groups and roles held by roles: what a user holds is the least fixed point of the rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import worlds
from seeds import seeds

from privtab.base.errors import UsageError
from privtab.base.moments import Window
from privtab.base.request import Entity
from privtab.base.source import SourceFile
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program
from privtab.state import links, raw
from privtab.state.holdings import Holdings
from privtab.state.index import index_bytes, index_document, without_revision
from privtab.state.links import with_derived_rows
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

SEEDS = range(40)
Rows = list[dict[str, str]]


def world(seed: int) -> tuple[Program, State]:
    """A generated policy and state, with chains of groups and of roles for most seeds."""
    text = worlds.policy(seed, f"world{seed}", ("hierarchy",) if seed % 10 else ())
    program = load_program(SourceFile(path="world.yaml", text=text))
    return program, worlds.state(program, seed)


def fixed_point(
    program: Program, state: State, user: str, request_groups: tuple[str, ...]
) -> set[tuple[str, str | None]]:
    """The pairs of a principal and a scope that a user has, by the definition: rules are applied until nothing is added."""
    kinds, sources = program.semantics.hierarchy, program.semantics.groups
    keys = vocabulary(program).keys

    def meet(outer: str | None, inner: str | None) -> tuple[str | None, ...]:
        if outer is None or inner is None or outer == inner:
            return (outer or inner,)
        inside = [a for a, b in ((outer, inner), (inner, outer)) if b in keys(Entity.parse(a))]
        return tuple(inside)

    found: set[tuple[str, str | None]] = {(f"user:{user}", None)}
    found |= {(f"group:{group}", None) for group in program.semantics.everyones}
    if "request" in sources:
        found |= {(f"group:{group}", None) for group in request_groups}
    while True:
        more = set(found)
        for member, group in state.memberships:
            nested = member.startswith("group:")
            if (member if nested else f"user:{member}", None) in found and (nested or "state" in sources):
                assert not nested or "groups" in kinds
                more.add((f"group:{group}", None))
        for row in state.assignments:
            own = None if row.scope is None else str(row.scope)
            for principal, scope in found:
                if principal == row.principal:
                    more |= {(f"role:{row.role}", both) for both in meet(scope, own)}
        if more == found:
            return found
        found = more


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=12))
def test_a_user_holds_the_least_fixed_point_of_the_rows(seed: int) -> None:
    program, state = world(seed)
    holdings = Holdings(program, state)
    for user in (*worlds.names(program).users, "nobody"):
        for request_groups in ((), tuple(worlds.names(program).groups[:1])):
            pairs = fixed_point(program, state, user, request_groups)
            assert holdings.of_user(user, request_groups).principals == {p for p, scope in pairs if scope is None}
            assert set(holdings.of_user(user, request_groups).scoped) == {
                (p, scope) for p, scope in pairs if scope is not None
            }
            assert holdings.of_user(user, request_groups).roles == {p[5:] for p, _ in pairs if p.startswith("role:")}
            assert holdings.groups(user, request_groups) == {p[6:] for p, _ in pairs if p.startswith("group:")}


def test_the_worlds_have_chains() -> None:
    longer = 0
    for seed in SEEDS:
        program, state = world(seed)
        more = with_derived_rows(program, state)
        longer += len(more.memberships) + len(more.assignments) > len(state.memberships) + len(state.assignments)
        assert more.memberships[: len(state.memberships)] == state.memberships
        assert more.assignments[: len(state.assignments)] == state.assignments
    assert longer > 10


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=12))
def test_columns_give_the_index_that_rows_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, state = world(seed)
    tables = state.to_tables()
    monkeypatch.setattr(raw, "LARGE", 10**9)
    rows, found = validate(program, from_tables(tables, "state.json"))
    monkeypatch.setattr(raw, "LARGE", 0)
    large, also = validate(program, from_tables(tables, "state.json"))
    assert found == also
    assert large.to_tables() == rows.to_tables()
    if any(tables.values()):
        assert large.coded
        assert index_bytes(program, large) == index_bytes(program, rows)


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=12))
def test_the_index_is_that_of_a_state_with_each_pair_assigned(seed: int) -> None:
    program, state = world(seed)
    whole = with_derived_rows(program, state)
    flat = replace(
        whole,
        memberships=tuple(row for row in whole.memberships if not row[0].startswith("group:")),
        assignments=tuple(row for row in whole.assignments if not row.principal.startswith("role:")),
    )
    plain = replace(program, semantics=replace(program.semantics, hierarchy=()))
    nested, assigned = without_revision(program, state), without_revision(plain, flat)
    for part in ("principals", "scoped", "owners", "members"):
        assert nested[part] == assigned[part]


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=12))
def test_a_chain_holds_while_all_its_links_hold(seed: int) -> None:
    program, state = world(seed)
    timed = worlds.timed(state, seed)
    if not timed.windows:
        return
    whole = with_derived_rows(program, timed)
    for at in worlds.moments(timed)[::3]:
        then = with_derived_rows(program, timed.at(at))
        for table in ("memberships", "assignments"):
            assert set(getattr(whole.at(at), table)) == set(getattr(then, table))


def small(hierarchy: str = "[groups, roles]", *, groups: str = "[state, request]") -> Program:
    """A policy with roles of a catalog."""
    text = f"""\
privtab: 1
system: small
version: "1"
entities: {{catalog: {{table:}}, role:, group:}}
privileges: {{READ: {{on: [catalog, table]}}}}
semantics: {{inheritance: down, deny: overrides, groups: {groups}, hierarchy: {hierarchy}}}
roles:
  contributor: {{scope: catalog, grants: {{table: [READ]}}}}
  helper: {{scope: catalog, grants: {{catalog: [READ]}}}}
tables:
  table: {{load: READ (table)}}
"""
    return load_program(SourceFile.of("small.yaml", text))


def checked(program: Program, **tables: Rows) -> tuple[State, list[tuple[str, int, str, str]]]:
    """The valid rows, and the errors: code, table, number of the row, message."""
    state, found = validate(program, from_tables(tables, "state.json"))
    return state, [(f.code, f.place.row, f.place.table, f.message) for f in found if f.severity == "error"]


def test_members_are_users_or_groups_and_holders_also_roles() -> None:
    rows: dict[str, Rows] = {
        "memberships": [{"user": "ann", "group": "eu"}, {"user": "group:eu", "group": "all"}],
        "assignments": [
            {"principal": "user:ann", "role": "engineer"},
            {"principal": "role:engineer", "role": "contributor", "scope": "catalog:silver"},
            {"principal": "role:contributor", "role": "helper"},
        ],
    }
    program = small()
    state, found = checked(program, **rows)
    assert found == []
    holdings = Holdings(program, state)
    assert holdings.of_user("ann").principals == {"user:ann", "group:eu", "group:all", "role:engineer"}
    assert holdings.of_user("ann").scoped == (("role:contributor", "catalog:silver"), ("role:helper", "catalog:silver"))
    assert holdings.groups("bob", ["eu"]) == {"eu", "all"}
    assert {code for code, *_ in checked(small("roles"), **rows)[1]} == {"S122"}
    assert {table for _, _, table, _ in checked(small("groups"), **rows)[1]} == {"assignments"}


def test_a_group_is_in_groups_although_those_of_users_come_from_requests() -> None:
    program = small("groups", groups="request")
    rows = [{"user": "ann", "group": "eu"}, {"user": "group:eu", "group": "all"}]
    state, found = validate(program, from_tables({"memberships": rows}, "state.json"))
    assert [(f.code, f.place.row) for f in found] == [("S162", 1)]
    holdings = Holdings(program, state)
    assert holdings.groups("ann") == frozenset()
    assert holdings.groups("ann", ["eu"]) == {"eu", "all"}


@pytest.mark.parametrize("least", [10**9, 0], ids=["rows", "columns"])
def test_rows_on_a_cycle_are_errors_in_any_order(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "LARGE", least)
    rows = [("role:a", "b"), ("user:ann", "a"), ("role:b", "c"), ("role:c", "a"), ("role:c", "d"), ("role:e", "e")]
    for order in (rows, rows[::-1]):
        tables = [{"principal": principal, "role": role} for principal, role in order]
        state, found = checked(small(), assignments=tables)
        assert {(a.principal, a.role) for a in state.assignments} == {("user:ann", "a"), ("role:c", "d")}
        assert [code for code, *_ in found] == ["S186"] * 4
        messages = {message for *_, message in found}
        assert "the roles hold each other: `role:a` → `role:b` → `role:c` → `role:a`" in messages
        assert "`role:e` holds itself" in messages


def test_a_chain_has_a_bound() -> None:
    def chain(links: int) -> Rows:
        return [{"user": f"group:g{n}", "group": f"g{n + 1}"} for n in range(links)]

    assert checked(small(), memberships=chain(links.MOST_LINKS))[1] == []
    state, found = checked(small(), memberships=chain(links.MOST_LINKS + 1))
    message = f"`group:g0` begins a chain of more than {links.MOST_LINKS} groups that contain each other"
    assert found == [("S184", 1, "memberships", message)]
    assert len(state.memberships) == links.MOST_LINKS


def test_a_large_cycle_is_reported_without_all_its_names() -> None:
    rows = [{"user": f"group:g{n}", "group": f"g{(n + 1) % 3000}"} for n in range(3000)]
    state, found = checked(small(), memberships=rows)
    assert state.memberships == ()
    assert len(found) == 3000
    assert found[0][3] == "3,000 groups contain each other, `group:g0` and `group:g1` among them"


def test_rows_that_would_be_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_DERIVED", 30)
    rows = [{"principal": "role:top", "role": f"r{n}"} for n in range(20)]
    users = [{"principal": f"user:u{n}", "role": "top"} for n in range(2)]
    for least in (10**9, 0):
        monkeypatch.setattr(raw, "LARGE", least)
        state, _ = checked(small(), assignments=[*rows, *users])
        with pytest.raises(
            UsageError, match="rows follow from groups in groups and roles held by roles; 30 is the most"
        ):
            index_document(small(), state)


def test_scopes_intersect() -> None:
    program = small()
    rows = [
        {"principal": "user:ann", "role": "a", "scope": "table:silver/t"},
        {"principal": "role:a", "role": "b", "scope": "catalog:silver"},
        {"principal": "role:a", "role": "c", "scope": "catalog:gold"},
        {"principal": "role:b", "role": "d"},
    ]
    state, _ = checked(program, assignments=rows)
    assert Holdings(program, state).of_user("ann").scoped == tuple((f"role:{name}", "table:silver/t") for name in "abd")
    assert Holdings(program, state).of_principal("role:a")[1] == (
        ("role:b", "catalog:silver"),
        ("role:c", "catalog:gold"),
        ("role:d", "catalog:silver"),
    )


def test_windows_of_all_links_intersect() -> None:
    rows = State(
        memberships=(("ann", "eu"), ("group:eu", "all"), ("group:eu", "hr")),
        windows={"memberships": (Window(0, 10), Window(5, 20), Window(10, 20))},
    )
    whole = with_derived_rows(small(), rows)
    derived = list(zip(whole.memberships, whole.windows["memberships"], strict=True))[3:]
    assert derived == [(("ann", "all"), Window(5, 10))]


def test_a_policy_without_a_hierarchy_has_the_state_itself() -> None:
    program, state = next(found for seed in SEEDS if not (found := world(seed))[0].semantics.hierarchy)
    assert with_derived_rows(program, state) is state
