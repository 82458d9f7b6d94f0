"""What is proposed about a denial: it turns it, nothing of it can be left out, and the least privilege comes first."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import generated_programs
import pytest
import worlds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seeds import seeds

from privtab.base import Entity, GivenAttributes, Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import Grant, State, StateFinding, from_tables, validate
from privtab.state.nodes import ALL_TABLES, Effect
from privtab_analysis.changes import AddToGroup, Assign, Give, apply, change_text
from privtab_analysis.explanation import explain, proposals
from privtab_analysis.turns import remedies

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item:}}
privileges: [READ, WRITE, DROP]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
tables:
  item:
    read: READ (item) or owner (item)
    write: WRITE (item)
    drop: DROP (item)
"""
PROGRAM = load_program(SourceFile.decode(POLICY.encode(), "shop.yaml"))
ROWS = {
    "memberships": [{"user": "ann", "group": "staff"}],
    "assignments": [
        {"principal": "user:ann", "role": "reader"},
        {"principal": "group:bosses", "role": "editor"},
    ],
    "grants": [
        {"grantee": "role:reader", "effect": "allow", "privilege": "READ", "entity": "item:s/i"},
        {"grantee": "role:editor", "effect": "allow", "privilege": "READ", "entity": "store:s"},
        {"grantee": "role:editor", "effect": "allow", "privilege": "WRITE", "entity": "store:s"},
        {"grantee": "group:staff", "effect": "allow", "privilege": "READ", "entity": "store:s"},
        {"grantee": "group:staff", "effect": "allow", "privilege": "WRITE", "entity": "item:s/j"},
    ],
}


def state_of(rows: dict[str, list[dict[str, str]]]) -> State:
    state, findings = validate(PROGRAM, from_tables(rows, "state"))
    assert not [finding for finding in findings if finding.severity == "error"]
    return state


def proposed(rows: dict[str, list[dict[str, str]]], action: str, entity: str = "item:s/i") -> list[tuple[str, ...]]:
    state = state_of(rows)
    reference = Reference(PROGRAM, state)
    request = Request(user="zoe", action=action, resource=Entity.parse(entity))
    found, _ = proposals(reference, state, request, remedies(reference, state, request))
    assert not found[0].direct, "what a certification calls a finding is never first"
    return [(*(change_text(c, "zoe") for c in p.changes), *(["new role"] if p.new_role else [])) for p in found]


def test_changes_come_by_what_else_they_would_allow_and_then_by_kind() -> None:
    assert proposed(ROWS, "read") == [
        ("assign role:reader to user:zoe",),
        ("grant READ at item:s/i to user:zoe",),
        ("make user:zoe owner of item:s/i",),
        ("add user:zoe to group:staff",),
        ("assign role:editor to user:zoe",),
        ("add user:zoe to group:bosses",),
    ]


def test_a_grant_comes_before_a_role_that_gives_much_more() -> None:
    superuser = [
        {"grantee": "role:superuser", "effect": "allow", "privilege": privilege, "entity": "store:s"}
        for privilege in ("READ", "WRITE", "DROP")
    ]
    found = proposed({**ROWS, "grants": superuser}, "read")
    assert found.index(("grant READ at item:s/i to user:zoe",)) < found.index(("assign role:superuser to user:zoe",))


def test_what_a_lifted_denial_gives_to_others_counts() -> None:
    rows = {
        "memberships": [{"user": user, "group": "staff"} for user in ("ann", "ben", "cleo")],
        "grants": [
            {"grantee": "group:staff", "effect": "allow", "privilege": "READ", "entity": "store:s"},
            {"grantee": "group:staff", "effect": "deny", "privilege": "READ", "entity": "item:s/i"},
        ],
    }
    state = state_of(rows)
    reference = Reference(PROGRAM, state)
    request = Request(user="ann", action="read", resource=Entity.parse("item:s/i"))
    found, _ = proposals(reference, state, request, remedies(reference, state, request))
    gains = {change_text(proposal.changes[0], "ann"): proposal.gains for proposal in found}
    assert gains["remove the denial of READ at item:s/i to group:staff"] == 3
    assert gains["make user:ann owner of item:s/i"] == 1
    assert found[0].gains == 1


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("[user]", "make user:zoe owner of item:s/i"),
        ("[role]", "make a new role owner of item:s/i, and assign it to user:zoe"),
        ("[group]", "make a new group owner of item:s/i, and add user:zoe"),
        ("[group, role]", "make a new role owner of item:s/i, and assign it to user:zoe"),
    ],
)
def test_only_who_may_own_is_made_an_owner(kinds: str, expected: str) -> None:
    text = POLICY.replace("creator: true", f"kinds: {kinds}").replace("drop: DROP (item)", "drop: owner (item)")
    program = load_program(SourceFile.decode(text.encode(), "shop.yaml"))
    request = Request(user="zoe", action="drop", resource=Entity.parse("item:s/i"))
    [way] = remedies(Reference(program, State()), State(), request).sets
    assert [change_text(change, "zoe") for change in way] == [expected]
    after = apply(State(), "zoe", way)
    assert not errors(program, after)
    assert Reference(program, after).decide(request).allowed


def errors(program: Program, state: State) -> list[StateFinding]:
    _, found = validate(program, from_tables({table: list(state.cells(table)) for table in ALL_TABLES}, "state"))
    return [finding for finding in found if finding.severity == "error"]


def test_a_grant_goes_to_a_new_role_where_nothing_else_would_do() -> None:
    assert proposed(ROWS, "drop") == [
        ("grant DROP at item:s/i to user:zoe", "new role"),
        ("grant DROP at item:s/i to user:zoe",),
    ]


def test_a_role_that_is_denied_comes_with_what_lifts_the_denial() -> None:
    denial = {"grantee": "role:reader", "effect": "deny", "privilege": "READ", "entity": "item:s/i"}
    found = proposed({**ROWS, "grants": [*ROWS["grants"], denial]}, "read")
    assert ("assign role:reader to user:zoe",) not in found
    assert ("add user:zoe to group:staff",) in found
    lifted = ("remove the denial of READ at item:s/i to role:reader", "assign role:reader to user:zoe")
    assert found.index(lifted) > found.index(("make user:zoe owner of item:s/i",)), "ann gains by it, too"


def test_a_large_state_is_measured_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("privtab_analysis.explanation"), "EXACT", 1)
    found = proposed(ROWS, "read")
    assert found.index(("assign role:reader to user:zoe",)) < found.index(("assign role:editor to user:zoe",))


WORLDS = ((), worlds.IN_SPARK, ("below", "implies"), ("nested", "below", *worlds.IN_SPARK))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@example(111, 1)  # A request without the last name of a path of a type that nests.
@given(st.integers(0, 400), st.integers(0, 10_000))
def test_every_proposal_turns_the_answer_and_needs_all_of_its_changes(policy: int, seed: int) -> None:
    check(policy, seed)


@pytest.mark.long
def test_proposals_in_many_worlds(search_seed: int) -> None:
    numbers = iter(range(search_seed, search_seed + 1_000))
    tried = 0
    while tried < 10_000:
        policy = next(numbers)
        tried += check(policy, policy)


def check(policy: int, seed: int) -> int:
    """Decide with and without each change of each proposal; returns how often."""
    tried = 0
    program = generated_programs.program(policy, *WORLDS[policy % len(WORLDS)])
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    known = errors(program, state)
    for request in worlds.requests(program, seed, per_rule=1)[:20]:
        if reference.decide(request).allowed:
            continue
        turns = remedies(reference, state, request)
        found, _ = proposals(reference, state, request, turns)
        assert {p.changes for p in found} >= {
            way for way in turns.sets if not any(set(p.changes) < set(way) for p in found)
        }, "nothing that turned it is lost"
        for proposal in found[:12]:
            for at in range(-1, len(proposal.changes)):
                some = [change for n, change in enumerate(proposal.changes) if n != at]
                tried += 1
                decision = Reference(program, apply(state, request.user, some)).decide(request)
                assert decision.allowed is (at == -1), (request, proposal, some)
            assert proposal.new_role or proposal.direct is any(
                isinstance(c, Give) and c.table == "grants" for c in proposal.changes
            )
            refused = errors(program, apply(state, request.user, proposal.changes))
            assert known or not refused, (request, proposal, refused)
        gains = [proposal.gains for proposal in found if proposal.exact and proposal.gains is not None]
        assert gains == sorted(gains)
        assert all(isinstance(c, Assign | AddToGroup) or c for p in found for c in p.changes)
    return tried


BELOW = """\
privtab: 1
system: lake
version: "1"
entities: {sch: {fun:}}
privileges: {READ: , WRITE: {implies: [READ]}}
semantics: {inheritance: down, deny: overrides, owner: {holds: [READ]}}
tables:
  fun:
    run: WRITE (fun) and READ (sch or below)
    own: owner (fun) and owner (sch or below)
    keep: owner (fun) and READ (sch or below)
"""


@pytest.mark.parametrize(
    ("action", "rows", "expected"),
    [
        ("run", [], {("grant WRITE at fun:a/f to user:zoe",)}),
        ("own", [], {("make user:zoe owner of fun:a/f",)}),
        ("keep", [], {("make user:zoe owner of fun:a/f",)}),
        (
            "run",
            [("deny", "READ", "fun:a/f")],
            {
                ("grant READ at sch:a to user:zoe", "grant WRITE at fun:a/f to user:zoe"),
                ("grant WRITE at fun:a/f to user:zoe", "make user:zoe owner of sch:a"),
                ("remove the denial of READ at fun:a/f to user:zoe", "grant WRITE at fun:a/f to user:zoe"),
            },
        ),
        (
            "run",
            [("allow", "READ", "fun:a/g"), ("deny", "READ", "sch:a"), ("allow", "WRITE", "fun:a/f")],
            {("remove the denial of READ at sch:a to user:zoe",), ("make user:zoe owner of sch:a",)},
        ),
    ],
)
def test_what_is_given_below_counts_above(
    action: str, rows: list[tuple[Effect, str, str]], expected: set[tuple[str, ...]]
) -> None:
    program = load_program(SourceFile.decode(BELOW.encode(), "lake.yaml"))
    grants = (Grant(grantee="user:zoe", effect=e, privilege=p, entity=Entity.parse(on)) for e, p, on in rows)
    state = State(grants=tuple(grants))
    request = Request(user="zoe", action=action, resource=Entity.parse("fun:a/f"))
    found = remedies(Reference(program, state), state, request)
    assert {tuple(change_text(change, "zoe") for change in way) for way in found.sets} == expected


@pytest.mark.parametrize("seed", seeds((14, 15, 17, 33, *range(14), *range(18, 33)), quick=8))
def test_no_change_is_superfluous_where_rights_below_count(seed: int) -> None:
    program = generated_programs.program(seed, *(("nested",) if seed % 2 else ()), "below", "implies")
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    for request in worlds.requests(program, seed, per_rule=1)[:12]:
        for way in remedies(reference, state, request).sets[:6]:
            for at in range(-1, len(way)):
                some = [change for n, change in enumerate(way) if n != at]
                decision = Reference(program, apply(state, request.user, some)).decide(request)
                assert decision.allowed is (at == -1), (request, way, some)


IMPLIED = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item:}}
privileges:
  READ: {on: [store, item]}
  ADMIN: {on: [store], implies: [READ]}
semantics: {inheritance: down}
tables:
  item: {drop: READ (item) and ADMIN (store), find: ADMIN (store) and member (store) or READ (store)}
"""


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("drop", {("grant ADMIN at store:s to user:zoe",)}),
        ("find", {("grant ADMIN at store:s to user:zoe",), ("grant READ at store:s to user:zoe",)}),
    ],
)
def test_a_grant_of_a_privilege_gives_what_that_implies(action: str, expected: set[tuple[str, ...]]) -> None:
    program = load_program(SourceFile.decode(IMPLIED.encode(), "shop.yaml"))
    request = Request(user="zoe", action=action, resource=Entity.parse("item:s/i"))
    found = remedies(Reference(program, State()), State(), request)
    assert {tuple(change_text(change, "zoe") for change in way) for way in found.sets} == expected


def test_attributes_of_the_request_count_as_given_and_those_that_are_not_as_required_are_missing() -> None:
    text = POLICY.replace("semantics:", "attributes: {request: {mfa: bool}}\nsemantics:").replace(
        "drop: DROP (item)", "drop: DROP (item) and request.mfa"
    )
    program = load_program(SourceFile.decode(text.encode(), "shop.yaml"))
    for with_mfa, expected in ((True, ["grant DROP at item:s/i to user:zoe"]), (False, [])):
        attributes = GivenAttributes(request={"mfa": with_mfa})
        request = Request(user="zoe", action="drop", resource=Entity.parse("item:s/i"), attributes=attributes)
        found = explain(Reference(program, State()), request, State())
        assert [change_text(c, "zoe") for p in found.proposals if not p.new_role for c in p.changes] == expected
        assert found.turns_complete
        assert {p.gains for p in found.proposals} <= {1}
        missing = [part.atom for parts in found.sets for part in parts if part.fixed]
        assert missing == ([] if with_mfa else ["request.mfa = true"])


def test_a_flag_that_asks_for_more_is_named() -> None:
    text = POLICY.replace(
        "drop: DROP (item)", "drop: DROP (item) when force and WRITE (item) when deep and READ (item)"
    )
    program = load_program(SourceFile.decode(text.encode(), "shop.yaml"))
    state = State(grants=(Grant(grantee="user:zoe", effect="allow", privilege="READ", entity=Entity("item", "s/i")),))
    request = Request(user="zoe", action="drop", resource=Entity("item", "s/i"), flags=frozenset({"force"}))
    assert explain(Reference(program, state), request, state).demanding == ("force",)
    both = replace(request, flags=frozenset({"force", "deep"}))
    assert explain(Reference(program, state), both, state).demanding == ("deep", "force")
    assert explain(Reference(program, State()), both, State()).demanding == ()
