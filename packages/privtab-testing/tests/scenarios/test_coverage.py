"""Cell coverage, counted by hand on a small policy."""

from __future__ import annotations

import re
from textwrap import dedent

from shop_policy import Reads, failed

from privtab_testing.scenarios import CasePlan, prove
from privtab_testing.scenarios.prove import Coverage, coverage, observe, percent, suggested
from privtab_testing.scenarios.run import ReferenceEngine, failures

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf: }, note: }
privileges: [READ, WRITE]
semantics: {inheritance: none}
tables:
  store:
    open: READ (store) and WRITE (store) or READ (store) and owner (store)
  shelf:
    list: {requires: READ (store), each: READ (shelf)}
    burn: WRITE (shelf) when really
    move: {with: {to: [shelf, store]}, requires: WRITE (to)}
  note: {see: anyone}
"""
POLICY = POLICY.replace("inheritance: none", "inheritance: none, owner: {kinds: [user]}")
STATE = """\
state:
  grants:
    - {grantee: "user:ann", effect: allow, privilege: READ, entity: "store:s"}
    - {grantee: "user:ann", effect: allow, privilege: WRITE, entity: "store:s"}
    - {grantee: "user:ben", effect: allow, privilege: READ, entity: "store:s"}
    - {grantee: "user:cleo", effect: allow, privilege: READ, entity: "store:s"}
    - {grantee: "user:cleo", effect: allow, privilege: WRITE, entity: "store:s"}
    - {grantee: "user:cleo", effect: allow, privilege: READ, entity: "shelf:s/a"}
  owners: [{entity: "store:s", owner: "user:cleo"}]
"""


def covered(plan: CasePlan) -> Coverage:
    return coverage(plan, observe(plan, plan.cases))


def proved(reads: Reads, cases: str, rule: str) -> list[str]:
    plan = reads(f"{STATE}cases: [{cases}]", POLICY)
    return [f"{c.setting}: {c.text}" for c in covered(plan).cells if c.covered and c.rule.id.endswith(rule)]


def test_what_belongs_to_a_single_type_is_always_named(reads: Reads) -> None:
    """It has no name of its own that a call could omit."""
    policy = POLICY.replace("entities: {store: {shelf: }", "entities: {store: {shelf: , rules: }")
    policy = policy.replace("\nprivileges", "\ntypes: {rules: {single: true}}\nprivileges", 1)
    policy += "  rules: {list: {requires: READ (store), each: READ (rules)}, make: {requires: WRITE (rules), grants: READ (rules)}}\n"
    plan = reads(f"{STATE}cases: [{{user: ben, action: list, resource: 'rules:s', decision: deny}}]", policy)
    cells = [cell for cell in covered(plan).cells if cell.rule.entity == "rules" and cell.rule.operation == "list"]
    assert [(cell.setting, cell.text, cell.covered) for cell in cells] == [
        ("", "allowed by READ (store), READ (rules)", False),
        ("", "denied without READ (store), though with READ (rules)", False),
        ("", "denied without READ (rules), though with READ (store)", True),
        ("", "denied to callers who hold none of it", False),
    ]
    text = suggested(plan, covered(plan), None)
    assert re.findall(r"(?:list|make) rules:\S*", text) == ["list rules:s", "make rules:s"]
    again = reads(STATE + text, policy)
    assert not failed(again)
    assert not [cell for cell in covered(again).untested if cell.rule.entity == "rules"]


def test_the_cells_of_every_form_of_every_row(reads: Reads) -> None:
    plan = reads(f"{STATE}cases: [{{user: x, action: see, resource: 'note:n', decision: allow}}]", POLICY)
    totals = {rule.removeprefix("shop/"): (cells, hit) for rule, (_, cells, hit) in covered(plan).by_rule().items()}
    assert totals == {
        # Two sets of two atoms: allowed by each, denied without each atom of each, and by default.
        "store/open": (2 + 4 + 1, 0),
        # A named item: one set of two atoms; the call: one of one.
        "shelf/list": (1 + 2 + 1 + 1 + 1 + 1, 0),
        # Without the flag anyone may; with it one set of one atom.
        "shelf/burn": (1 + 3, 0),
        # The object is a shelf, or a store.
        "shelf/move": (3 + 3, 0),
        "note/see": (1, 1),
    }
    assert (covered(plan).covered, len(covered(plan).cells)) == (1, 7 + 7 + 4 + 6 + 1)


def test_an_allow_counts_for_the_only_set_that_its_caller_holds(reads: Reads) -> None:
    case = '{user: USER, action: open, resource: "store:s", decision: allow}'
    assert proved(reads, case.replace("USER", "ann"), "open") == [": allowed by READ (store), WRITE (store)"]
    assert proved(reads, case.replace("USER", "cleo"), "open") == []


def test_a_denial_counts_for_the_one_atom_that_is_lacking(reads: Reads) -> None:
    case = '{user: USER, action: open, resource: "store:s", decision: deny}'
    assert proved(reads, case.replace("USER", "ben"), "open") == [
        ": denied without WRITE (store), though with READ (store)",
        ": denied without owner (store), though with READ (store)",
    ]
    assert proved(reads, case.replace("USER", "eve"), "open") == [": denied to callers who hold none of it"]


def test_the_call_and_a_named_item_are_two_things(reads: Reads) -> None:
    assert proved(reads, '{user: ben, action: list, resource: "shelf:s", decision: allow}', "list") == [
        "the call: allowed by READ (store)"
    ]
    assert proved(reads, '{user: ben, action: list, resource: "shelf:s/a", decision: deny}', "list") == [
        "a named item: denied without READ (shelf), though with READ (store)"
    ]


def test_flags_and_types_of_objects_are_settings(reads: Reads) -> None:
    burn = '{user: eve, action: burn, resource: "shelf:s/a", FLAGS decision: ANSWER}'
    assert proved(reads, burn.replace("FLAGS", "").replace("ANSWER", "allow"), "burn") == [": allowed to anyone"]
    assert proved(reads, burn.replace("FLAGS", "flags: [really],").replace("ANSWER", "deny"), "burn") == [
        "with really: denied without WRITE (shelf)",
        "with really: denied to callers who hold none of it",
    ]
    move = '{user: ann, action: move, resource: "shelf:s/a", with: {to: "store:s"}, decision: allow}'
    assert proved(reads, move, "move") == ["to: store: allowed by WRITE (to)"]


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert percent(9_999, 10_000) == 99.9
    assert percent(0, 0) == 100
    assert percent(1, 3) == 33.3


def test_cases_decided_at_once_prove_what_they_prove_one_by_one(reads: Reads) -> None:
    """Some are answered wrongly, by the decision, by an effect or by a reason, and prove nothing."""
    cases = """\
        cases:
          - {user: ann, action: open, resource: "store:s", decision: allow, effects: ["become owner (store:s)"]}
          - {user: ann, action: burn, resource: "shelf:s/a", flags: [really], decision: deny}
          - {user: ben, action: open, resource: "store:s", decision: allow}
          - {user: ben, action: list, resource: "store:s", decision: deny}
          - {user: cleo, action: open, resource: "store:s", decision: allow, reason: ["owner (store:s)"]}
          - {user: cleo, action: list, resource: "shelf:s/a", decision: allow}
          - {user: dora, action: list, resource: "shelf:s", decision: deny}
        """
    cases = cases.replace('list, resource: "store:s"', 'list, resource: "shelf:s/b"')
    plan = reads(f"{STATE}{dedent(cases)}needs: [{{ask: see note:n, by: anyone}}]", POLICY)
    failed = [failure.case for failure in failures(plan, plan.cases, [ReferenceEngine(plan.program)])]
    assert [f"{case.request.user} {case.request.action}" for case in failed] == ["ann open", "ben open", "cleo open"]
    one_by_one = coverage(plan, observe(plan, [case for case in plan.cases if case not in failed]))
    assert prove.proved(plan).cells == one_by_one.cells
    assert 0 < one_by_one.covered < covered(plan).covered
