"""What logs show that nobody needs, against every state with a row less; and proposals, against every further row."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import worlds
from lake_policy import POLICY
from seeds import seeds

from privtab import model
from privtab.base import Entity, InvalidRequest, Request, SourceFile, UsageError, parse_moment
from privtab.ir import Program
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.reference import Reference
from privtab.state import Places, State, from_tables, validate_with_places
from privtab_analysis.state_diff import state_diff
from privtab_analysis.state_diff.chosen import without_rows
from privtab_logs.distinct import Log, LoggedRequest
from privtab_logs.excerpts import Row, StateRows
from privtab_logs.kept import read_kept
from privtab_logs.proposal import CARRIES, DENIAL, FILTERS, Proposal, propose, removal_order
from privtab_logs.row_use import AGAIN, LATER, YOUNG, Observed, Unused, unused
from privtab_logs.usage import Usage, Use, usage

FEATURES = (
    (),
    ("hierarchy",),
    ("implies", "below", "any"),
    ("active", "hierarchy"),
    ("flat", "nested", "attributes", "below", "hierarchy", "implies"),
)
TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins")
BEGIN, END = parse_moment("2026-03-01T00:00:00Z"), parse_moment("2026-06-01T00:00:00Z")


def program_of(text: str) -> Program:
    source = SourceFile.of("policy.yaml", text)
    tables, _ = syntax.read_policy(source)
    assert tables is not None
    policy, found = model.resolve(tables)
    assert policy is not None, found
    return lower(policy)


def found_in(program: Program, state: State, log: list[LoggedRequest]) -> tuple[Usage, Proposal, list[Row]]:
    order: list[Row] = []

    def rank(rows: StateRows) -> Mapping[Row, int]:
        order.extend(removal_order(program, rows, {}))
        return {row: n for n, row in enumerate(order)}

    found = usage(program, state, log, rank=rank)
    return found, propose(program, found, order, {}), order


def without(state: State, rows: StateRows, gone: list[Row]) -> State:
    return without_rows(state, map(rows.place, gone))


@pytest.mark.parametrize("seed", seeds(range(30), quick=6))
def test_every_row_is_what_the_reference_says_of_the_state_without_it(seed: int) -> None:
    """All rows and all proposals of small worlds, tried one by one: needed, kept, irreducible, and nobody gains."""
    program = program_of(worlds.policy(seed, features=FEATURES[seed % len(FEATURES)]))
    drawn = worlds.state(program, seed)
    tables: Any = {table: tuple(dict.fromkeys(getattr(drawn, table))) for table in TABLES}
    state = replace(drawn, **tables)
    reference, rnd = Reference(program, state), random.Random(seed)
    log: list[LoggedRequest] = []
    for request in worlds.requests(program, seed, 12):
        try:
            allowed = reference.decide(request).allowed
        except InvalidRequest:
            continue
        if not allowed or rnd.random() < 0.4:
            log.append(LoggedRequest(request=request, allowed=allowed, first=1, last=2))
    allows = [logged.request for logged in log if logged.allowed]

    def keeps(other: State) -> bool:
        decide = Reference(program, other).decide
        return all(decide(request).allowed for request in allows)

    found, proposal, order = found_in(program, state, log)
    rows = found.rows
    for row in range(len(rows)):
        if row not in rows.denials:
            assert (row in found.needed) == (not keeps(without(state, rows, [row]))), rows.named(row)
    unused_rows = [row for row in order if found.of(row) is Use.UNUSED]
    assert keeps(without(state, rows, unused_rows))
    assert keeps(proposal.state)
    left = [row for row in order if row not in proposal.removed]
    for row in left:
        if row not in proposal.kept:
            assert not keeps(without(state, rows, [*proposal.removed, row])), rows.named(row)
    assert all(why in (DENIAL, FILTERS) or rows.containers.get(row) for row, why in proposal.kept.items())
    after = Reference(program, proposal.state)
    for request in worlds.requests(program, seed + 1000, 12):
        try:
            assert reference.decide(request).allowed or not after.decide(request).allowed
        except InvalidRequest:
            continue


@pytest.mark.parametrize("seed", seeds(range(10), quick=0, full=4))
def test_a_proposal_leaves_to_everybody_the_filters_that_apply(seed: int) -> None:
    """Whoever loses a filter may see more by the next one."""
    program = program_of(worlds.policy(seed, features=("filters", *FEATURES[seed % len(FEATURES)])))
    drawn = worlds.state(program, seed)
    tables: Any = {table: tuple(dict.fromkeys(getattr(drawn, table))) for table in TABLES}
    state = replace(drawn, **tables)
    _, proposal, _ = found_in(program, state, [])
    assert program.filters
    references = Reference(program, state), Reference(program, proposal.state)
    types = {one.entity for one in program.filters}
    for request in worlds.requests(program, seed, 40):
        if request.resource.type in types and not request.with_:
            asked = [
                replace(request, action=one.operation, flags=frozenset())
                for one in program.filters
                if one.entity == request.resource.type
            ]
            before, after = ([decide(reference, one) for one in asked] for reference in references)
            assert before == after


def decide(reference: Reference, request: Request) -> bool | None:
    try:
        return reference.decide(request).allowed
    except InvalidRequest:
        return None


# --- one idea at a time, in a lake ------------------------------------------------------------------------------------

LAKE = program_of(POLICY)


def asks(user: str, action: str, resource: str, *, allowed: bool = True) -> LoggedRequest:
    request = Request(user=user, action=action, resource=Entity.parse(resource))
    return LoggedRequest(request=request, allowed=allowed, first=BEGIN, last=END)


def grant(grantee: str, privilege: str, entity: str, effect: str = "allow", **window: str) -> dict[str, str]:
    return {"grantee": grantee, "effect": effect, "privilege": privilege, "entity": entity, **window}


def holds(principal: str, role: str, **window: str) -> dict[str, str]:
    return {"principal": principal, "role": role, **window}


def seen(tables: dict[str, Any], *log: LoggedRequest, earlier: dict[str, Any] | None = None, keep: str = "") -> Unused:
    state, places, findings = validate_with_places(LAKE, from_tables(tables, "state.yaml"))
    assert not [finding for finding in findings if finding.severity == "error"]
    before = None if earlier is None else validate_with_places(LAKE, from_tables(earlier, "earlier.yaml"))[0]
    kept = read_kept(SourceFile.of("keep.yaml", keep or "keep: []"), state, places, "state.yaml")
    assert not kept.found
    observed = Observed(whole=state, places=places, moment=END, kept=kept.rows, earlier=before)
    return unused(LAKE, observed, Log(requests=list(log), window=(BEGIN, END)))


def proposed(found: Unused) -> set[str]:
    return {row.text for row in found.rows if row.proposed}


def staying(found: Unused) -> dict[str, str]:
    return {row.text: row.stays for row in found.rows if row.stays is not None}


def test_direct_grants_go_before_memberships_and_large_rights_before_small_ones() -> None:
    found = seen(
        {
            "grants": [
                grant("user:ann", "SELECT", "table:l/s/t"),
                grant("user:ann", "READ", "lake:l"),
                grant("role:analyst", "SELECT", "schema:l/s"),
                grant("user:bob", "SELECT", "table:l/s/t"),
                grant("user:bob", "READ", "lake:l"),
            ],
            "assignments": [holds("user:ann", "analyst")],
        },
        asks("ann", "read", "table:l/s/t"),
        asks("bob", "read", "table:l/s/t"),
    )
    assert proposed(found) == {
        "SELECT granted to user:ann at table:l/s/t",
        "READ granted to user:ann at lake:l",
        "READ granted to user:bob at lake:l",
    }


def test_a_right_that_one_user_of_a_role_needs_stays_for_all() -> None:
    tables = {
        "grants": [grant("role:analyst", "SELECT", "lake:l"), grant("user:ann", "SELECT", "lake:l")],
        "assignments": [holds("user:ann", "analyst"), holds("user:bob", "analyst")],
    }
    found = seen(tables, asks("ann", "read", "table:l/s/t"), asks("bob", "read", "table:l/s/t"))
    assert proposed(found) == {"SELECT granted to user:ann at lake:l"}
    [role] = found.roles
    assert (role.role, role.used, role.holders) == ("role:analyst", ("SELECT (lake:l)",), 2)


def test_denials_stay_and_so_does_what_carries_one_that_matters() -> None:
    found = seen(
        {
            "grants": [
                grant("user:ann", "SELECT", "lake:l"),
                grant("group:outside", "SELECT", "schema:l/x", "deny"),
                grant("group:outside", "SELECT", "table:l/y/t"),
                grant("group:suspended", "READ", "lake:l", "deny"),
            ],
            "memberships": [
                {"user": "ann", "group": "outside"},
                {"user": "bob", "group": "outside"},
                {"user": "cid", "group": "suspended"},
            ],
        },
        asks("ann", "read", "table:l/s/t"),
        asks("ann", "read", "table:l/x/t", allowed=False),
    )
    assert proposed(found) == {"SELECT granted to group:outside at table:l/y/t", "bob is in group:outside"}
    assert staying(found) == {
        "SELECT denied to group:outside at schema:l/x": DENIAL,
        "READ denied to group:suspended at lake:l": DENIAL,
        "ann is in group:outside": CARRIES,
        "cid is in group:suspended": CARRIES,
    }


def test_a_role_held_everywhere_denies_where_a_scope_ends() -> None:
    """Held within a scope as well, the denial would apply there alone."""
    tables = {
        "grants": [
            grant("user:ann", "SELECT", "lake:l"),
            grant("role:r", "SELECT", "table:l/x/t", "deny"),
            grant("role:r", "SELECT", "table:l/y/t"),
        ],
        "assignments": [holds("user:ann", "r"), holds("user:ann", "r", scope="schema:l/y")],
    }
    found = seen(tables, asks("ann", "read", "table:l/s/t"), asks("ann", "read", "table:l/x/t", allowed=False))
    assert "ann holds role:r" not in proposed(found)


def test_a_denial_of_later_stays_with_those_whom_it_will_concern() -> None:
    later = {"from": "2026-07-01T00:00:00Z"}
    tables = {
        "grants": [
            grant("role:r", "SELECT", "table:l/y/t"),
            grant("role:r", "SELECT", "lake:l", "deny", **later),
            grant("user:ann", "SELECT", "lake:l", **later),
        ],
        "assignments": [holds("user:ann", "r")],
    }
    found = seen(tables, asks("zoe", "read", "table:l/s/t", allowed=False))
    assert proposed(found) == {"SELECT granted to role:r at table:l/y/t"}
    assert staying(found)["ann holds role:r"] == CARRIES


def test_what_the_log_could_not_show_is_not_proposed() -> None:
    day = {"from": "2026-05-01T00:00:00Z"}
    tables = {
        "grants": [
            grant("user:old", "SELECT", "lake:l", **{"from": "2026-01-01T00:00:00Z"}),
            grant("user:young", "SELECT", "lake:l", **day),
            grant("user:later", "SELECT", "lake:l", **{"from": "2026-07-01T00:00:00Z"}),
            grant("user:past", "SELECT", "lake:l", until="2026-02-01T00:00:00Z"),
            grant("user:twice", "SELECT", "lake:l"),
            grant("user:twice", "SELECT", "lake:l", until="2026-12-01T00:00:00Z"),
        ]
    }
    found = seen(tables)
    assert proposed(found) == {"SELECT granted to user:old at lake:l, from 2026-01-01T00:00:00Z"}
    assert {text.split()[3]: why for text, why in staying(found).items()} == {
        "user:young": YOUNG,
        "user:later": LATER,
        "user:past": LATER,
        "user:twice": AGAIN,
    }


def test_rows_that_the_state_lacked_when_the_log_began_are_young() -> None:
    before = {"assignments": [holds("user:ann", "analyst")]}
    now = {"assignments": [holds("user:bob", "analyst"), holds("user:ann", "analyst")]}
    found = seen(now, earlier=before)
    assert proposed(found) == {"ann holds role:analyst"}
    assert staying(found) == {"bob holds role:analyst": YOUNG}


def test_of_two_rows_the_one_that_ends_goes() -> None:
    ending = grant("role:analyst", "SELECT", "schema:l/s", until="2026-12-01T00:00:00Z")
    tables = {
        "grants": [ending, grant("user:ann", "SELECT", "schema:l/s")],
        "assignments": [holds("user:ann", "analyst")],
    }
    found = seen(tables, asks("ann", "read", "table:l/s/t"))
    ended = "SELECT granted to role:analyst at schema:l/s, until 2026-12-01T00:00:00Z"
    assert proposed(found) == {ended, "ann holds role:analyst"}
    kept = seen(tables, asks("ann", "read", "table:l/s/t"), keep=f"keep:\n- {{row: '{ended}', why: a project}}\n")
    assert ended not in proposed(kept)


def test_rows_are_kept_with_a_reason() -> None:
    tables = {
        "grants": [grant("role:emergency", "MANAGE", "lake:l"), grant("user:eve", "MANAGE", "lake:l")],
        "assignments": [holds("user:oncall", "emergency"), holds("user:eve", "emergency")],
    }
    keep = "keep:\n- principal: role:emergency\n  why: break-glass access\n- {row: MANAGE granted to user:eve at lake:l, why: hers}\n"
    found = seen(tables, keep=keep)
    assert not proposed(found)
    assert set(staying(found).values()) == {"break-glass access", "hers"}


def test_a_group_in_a_group_is_named_as_such() -> None:
    program = program_of(POLICY.replace("semantics: {", "semantics: {hierarchy: groups, "))
    tables = {"memberships": [{"user": "group:oncall", "group": "admins"}, {"user": "oncall", "group": "x"}]}
    state, places, findings = validate_with_places(program, from_tables(tables, "state.yaml"))
    assert not findings
    rows = [("group:oncall", "admins"), ("oncall", "x")]
    for principal, row in (("group:oncall", 0), ("user:oncall", 1), ("group:x", 1), ("group:admins", 0)):
        text = f"keep: [{{principal: '{principal}', why: break-glass}}]"
        kept = read_kept(SourceFile.of("keep.yaml", text), state, places, "state.yaml")
        assert [state.memberships[number] for _, number in kept.rows] == [rows[row]], principal


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("keep:\n- {principal: role:x, why: y}\n", 2, "no row of state.yaml names `role:x`"),
        ("keep:\n- {row: ann holds role:chief, why: y}\n", 2, "no row of state.yaml is `ann holds role:chief`"),
        ("keep:\n- {row: ann holds role:analyst}\n", 2, "`why`"),
        ("keep:\n- {row: ann holds role:analyst, principal: role:analyst, why: x}\n", 2, "name one row"),
        ("keep:\n- {why: x}\n", 2, "name one row"),
        ("keep:\n- {row: ann holds role:analyst, why: ' '}\n", 2, "`why` is empty"),
        ("keeps: []\n", 1, "keeps"),
        ("- x\n", 1, "mapping"),
    ],
)
def test_a_file_that_keeps_nothing_is_an_error_at_its_line(text: str, line: int, message: str) -> None:
    raw = from_tables({"assignments": [holds("user:ann", "analyst")]}, "state.yaml")
    state, places, _ = validate_with_places(LAKE, raw)
    found = read_kept(SourceFile.of("keep.yaml", text), state, places, "state.yaml").found
    first = next(iter(found))
    assert (first.span.line, message in first.message) == (line, True), found


def test_nothing_is_proposed_without_a_log() -> None:
    observed = Observed(whole=State(), places=Places.NONE, moment=END, kept={})
    with pytest.raises(UsageError, match="nothing was observed"):
        unused(LAKE, observed, Log())


def test_allows_that_the_state_no_longer_gives_keep_nothing() -> None:
    tables = {"grants": [grant("user:ann", "SELECT", "schema:l/s")]}
    found = seen(tables, asks("ann", "read", "table:l/x/t"))
    assert (len(found.usage.allows), len(found.usage.lapsed)) == (0, 1)
    assert proposed(found) == {"SELECT granted to user:ann at schema:l/s"}


def test_the_difference_of_a_proposal_gains_nothing() -> None:
    tables = {
        "owners": [{"entity": "lake:l", "owner": "user:root"}, {"entity": "table:l/s/t", "owner": "role:etl"}],
        "grants": [grant("role:etl", "CREATE", "lake:l"), grant("role:etl", "READ", "schema:l/s", "deny")],
        "assignments": [holds("user:cid", "etl"), holds("user:bob", "etl")],
    }
    found = seen(tables, asks("cid", "create", "schema:l/n"))
    difference = state_diff(LAKE, found.usage.rows.whole, found.proposal.state)
    assert difference.count(gained=False) > 0
    assert difference.count(gained=True) == 0


def test_hostile_names_are_rows_like_others() -> None:
    name = "<script>=1+1|`x`"
    found = seen(
        {"grants": [grant(f"user:{name}", "SELECT", "lake:l")]}, asks("ann", "read", "table:l/s/t", allowed=False)
    )
    assert [row.text for row in found.idle] == [f"SELECT granted to user:{name} at lake:l"]
    assert found.table().to_pylist() == [
        {
            "table": "grants",
            "row": f"SELECT granted to user:{name} at lake:l",
            "path": "state.yaml",
            "number": 1,
            "use": "unused",
            "count": 0,
            "first": None,
            "last": None,
            "stays": None,
            "proposed": True,
        }
    ]
