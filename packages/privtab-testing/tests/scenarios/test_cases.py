"""Cases: what is asked, what is frozen, and what is wrong with an entry."""

from __future__ import annotations

import pytest
from shop_policy import POLICY, Reads, Refuses, failed

from privtab_testing.scenarios.run import ReferenceEngine, failures

STATE = """\
state:
  grants:
    - {grantee: "role:clerk", effect: allow, privilege: READ, entity: "store:s"}
    - {grantee: "user:ann", effect: allow, privilege: WRITE, entity: "store:s"}
    - {grantee: "user:ben", effect: deny, privilege: READ, entity: "item:s/a/y"}
  assignments: [{principal: "user:ben", role: clerk}]
  owners: [{entity: "item:s/a/x", owner: "user:ann"}]
"""


ASKS = "cases: [{user: x, action: open, resource: 'store:s', decision: deny}]"


def failures_of(reads: Reads, case: str) -> list[tuple[str, str, str]]:
    plan = reads(f"{STATE}cases:\n  - {case}")
    return [(f.fault, f.expected, f.got) for f in failures(plan, plan.cases, [ReferenceEngine(plan.program)])]


def test_every_part_of_an_answer_can_be_frozen(reads: Reads) -> None:
    assert (
        failures_of(
            reads,
            '{user: ben, action: read, resource: "item:s/a/x", decision: allow, reason: ["READ (item:s/a/x) through role:clerk at store:s"], rule: item/read}',
        )
        == []
    )
    assert (
        failures_of(
            reads, '{user: ann, action: read, resource: "item:s/a/x", decision: allow, reason: ["owner (item:s/a/x)"]}'
        )
        == []
    )
    assert (
        failures_of(
            reads,
            '{user: ann, action: create, resource: "shelf:s/n", decision: allow, effects: ["become owner ({resource})", "grant ALL ({resource})"]}',
        )
        == []
    )
    assert (
        failures_of(
            reads,
            '{user: ben, action: read, resource: "item:s/a/y", decision: deny, missing: [["deny READ (item:s/a/y) to user:ben"], [owner (shelf:s/a)], [owner (item:s/a/y)]]}',
        )
        == []
    )


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        ('{user: cleo, action: read, resource: "item:s/a/x", decision: allow}', ("decision", "allow", "deny")),
        ('{user: ann, action: create, resource: "shelf:s/n", decision: allow, effects: []}', ("effects", "none", "become owner (shelf:s/n); grant ALL (shelf:s/n)")),
        ('{user: cleo, action: open, resource: "store:s", decision: deny, missing: [[WRITE (store:s)]]}', ("missing", "WRITE (store:s)", "READ (store:s)")),
        (
            '{user: ben, action: open, resource: "store:s", decision: allow, reason: ["READ (store:s) through user:ben"]}',
            ("reason", "READ (store:s) through user:ben", "READ (store:s) through role:clerk at store:s"),
        ),
        ('{user: ben, action: open, resource: "store:s", decision: allow, rule: store/close}', ("rule", "store/close", "shop/store/open")),
    ],
)  # fmt: skip
def test_every_part_that_is_otherwise_is_a_failure(reads: Reads, case: str, failure: tuple[str, str, str]) -> None:
    assert failures_of(reads, case) == [failure]


def test_a_listing_shows_what_is_visible_and_hides_all_else(reads: Reads) -> None:
    state = STATE.replace('"item:s/a/y"}', '"shelf:s/b"}')
    plan = reads(f'{state}cases: [{{user: ben, action: list, resource: "shelf:s", visible: ["shelf:s/a"]}}]')
    assert [(case.name, case.expected.allowed) for case in plan.cases] == [
        ("ben list shelf:s", True),
        ("ben list shelf:s: shows shelf:s/a", True),
        ("ben list shelf:s: hides shelf:s/b", False),
    ]
    assert failed(plan) == []
    plan = reads(f'{state}cases: [{{user: ben, action: list, resource: "shelf:s", visible: [], items: ["shelf:s/c"]}}]')
    assert failed(plan) == ["ben list shelf:s: hides shelf:s/c"]


def test_lists_of_actions_and_resources_are_as_many_cases(reads: Reads) -> None:
    plan = reads('cases: [{user: x, action: [read, peek], resource: ["item:s/a/x", "item:s/a/y"], decision: deny}]')
    assert len(plan.cases) == 4
    assert failed(plan) == []


@pytest.mark.parametrize(
    ("case", "code", "message"),
    [
        ('{user: x, action: raed, resource: "item:s/a/x", decision: deny}', "T103", "unknown operation `raed` on `item`"),
        ('{user: x, action: read, resource: "item:s/a", decision: deny}', "T103", "wrong depth: `item:s/a` has 2 name(s), a `item` path has 3 (store/shelf/item)"),
        ('{user: x, action: move, resource: "item:s/a/x", decision: deny}', "T103", "`move` on `item` needs `with: {to: TYPE:PATH}`: an entity of type shelf or item"),
        ('{user: x, action: read, resource: "item:s/a/x", flags: [realy], decision: deny}', "T103", "`read` on `item` uses no flag `realy`"),
        ('{user: x, action: read, resource: "item:s/a/x", decision: maybe}', "T004", "`decision` is `maybe`"),
        ('{user: x, action: read, resource: "item:s/a/x"}', "T002", "`decision` is missing in a case"),
        ('{user: x, resource: "item:s/a/x", decision: deny}', "T002", "`action` is missing in a case"),
        ('{usr: x, action: read, resource: "item:s/a/x", decision: deny}', "T001", "unknown key `usr` in a case"),
        ('{user: x, user: y, action: read, resource: "item:s/a/x", decision: deny}', "T005", "`user` occurs twice in a case, first on line 3"),
        ('{user: x, action: open, resource: "store:s", decision: deny, effects: []}', "T006", "a denial has no `effects`"),
        ('{user: x, action: open, resource: "store:s", decision: deny, reason: [self]}', "T006", "a denial has no `reason`"),
        ('{user: x, action: open, resource: "store:s", decision: allow, missing: [[self]]}', "T006", "an allow has no `missing`"),
        ('{user: x, action: open, resource: "store:s", decision: deny, report: error}', "T004", "`report` is `error`"),
        ("just text", "T003", "a case is `just text`, not a mapping"),
    ],
)  # fmt: skip
def test_mistakes_in_a_case(refuses: Refuses, case: str, code: str, message: str) -> None:
    [found, *_] = refuses(f"cases:\n  - {case}")
    assert (found.code, found.message, found.span.line) == (code, message, 3)


@pytest.mark.parametrize("key", ["expect", "Expected", "result", "answer", "outcome", "effect", "allow", "allowed"])
def test_words_of_other_tools_lead_to_the_decision(refuses: Refuses, key: str) -> None:
    found = refuses(f'cases: [{{user: x, action: read, resource: "item:s/a/x", {key}: allow}}]')
    assert {finding.code: finding.help for finding in found}["T001"] == "write `decision: allow` or `decision: deny`"


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("ask", "write `action`, `resource` and `decision`; `ask` belongs in `needs`, which lists all that suffices"),
        ("operation", "write `action`"),
        ("entity", "write `resource: TYPE:PATH`"),
        ("subject", "write `user`"),
        ("context", "write `with: {NAME: TYPE:PATH}`, and `flags: [FLAG]`"),
    ],
)
def test_words_of_other_tools_lead_to_their_keys(refuses: Refuses, key: str, advice: str) -> None:
    found = refuses(f'cases: [{{user: x, action: read, resource: "item:s/a/x", decision: deny, {key}: y}}]')
    assert (found[0].code, found[0].help) == ("T001", advice)


def test_a_list_of_tests_is_called_cases(refuses: Refuses) -> None:
    assert refuses("tests: []")[0].help == "write `cases`"


def test_a_text_that_a_comma_cut_off(refuses: Refuses) -> None:
    [found] = refuses('cases: [{user: x, action: read, resource: "item:s/a/x", decision: deny, why: one, two}]')
    assert (found.code, found.help) == ("T001", "a comma between braces ends a text: put the whole text in quotes")


def test_all_mistakes_are_reported_at_once(refuses: Refuses) -> None:
    found = refuses("cases:\n  - {user: x}\n  - {action: read}\nsuits: []")
    assert [(d.code, d.span.line) for d in found] == [("T002", 3), ("T002", 3), ("T002", 4), ("T002", 4), ("T001", 5)]
    found = refuses('cases:\n  - {user: x}\n  - {user: x, action: raed, resource: "item:s/a/x", decision: deny}')
    assert [d.span.line for d in found] == [3, 3, 4]


def test_a_state_must_be_good(refuses: Refuses) -> None:
    [found] = refuses(
        "state:\n  grants:\n    - {grantee: ann, effect: allow, privilege: READ, entity: 'store:s'}\n" + ASKS
    )
    assert (found.code, found.span.line, found.message) == ("T102", 4, "`ann` is not a principal")
    [found] = refuses("state: nowhere.yaml\n" + ASKS)
    assert (found.code, found.span.line) == ("T102", 2)


def test_reasons_of_a_row_can_be_frozen(reads: Reads) -> None:
    case = '{user: x, action: list, resource: "shelf:s/a", decision: deny, report: errors}'
    plan = reads(f"cases: [{case}]")
    found = [(f.fault, f.expected, f.got) for f in failures(plan, plan.cases, [ReferenceEngine(plan.program)])]
    assert found == [("report", "errors", "nothing")]
    reported = POLICY.replace("each: READ (shelf)}", "each: READ (shelf), report: errors}")
    assert failed(reads(f"cases: [{case}]", reported)) == []
