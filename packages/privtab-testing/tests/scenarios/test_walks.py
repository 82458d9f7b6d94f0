"""Walkthroughs: a state that changes from step to step."""

from __future__ import annotations

import pytest
from shop_policy import Reads, Refuses, failed

from privtab.base import PRINCIPAL_TABLES
from privtab.state import State
from privtab_testing.scenarios import CasePlan

WALK = """\
walkthroughs:
  - name: a shelf
    state:
      grants: [{grantee: "user:ann", effect: allow, privilege: WRITE, entity: "store:s"}]
    steps:
      - {say: not hers yet, user: ann, action: read, resource: "item:s/a/x", decision: deny}
      - {say: she makes it, user: ann, action: create, resource: "shelf:s/a", decision: allow,
         effects: ["grant ALL (shelf:s/a)", "become owner (shelf:s/a)"]}
      - {say: now it is, user: ann, action: read, resource: "item:s/a/x", decision: allow}
      - {say: it goes, user: ann, action: read, resource: "item:s/a/x", decision: allow,
         gone: {owners: [{entity: "shelf:s/a", owner: "user:ann"}], grants: [{grantee: "user:ann", effect: allow, privilege: ALL, entity: "shelf:s/a"}]},
         then: {grants: [{grantee: "user:bob", effect: allow, privilege: READ, entity: "store:s"}]}}
      - {say: gone, user: ann, action: read, resource: "item:s/a/x", decision: deny}
      - {say: and another's, user: bob, action: read, resource: "item:s/a/x", decision: allow}
"""


def test_effects_and_changes_hold_from_the_next_step_on(reads: Reads) -> None:
    plan = reads(WALK)
    assert failed(plan) == []
    assert len(plan.worlds) == 3
    assert plan.cases[1].name == "a shelf, step 2: she makes it"


def test_effects_are_checked(reads: Reads) -> None:
    plan = reads(
        WALK.replace("become owner (shelf:s/a)", "become owner (shelf:s/b)")
        .replace("gone: {owners", "gone: {members: [], owners")
        .replace('{entity: "shelf:s/a"', '{entity: "shelf:s/b"')
    )
    assert failed(plan)[0] == "a shelf, step 2: she makes it"


def test_a_row_that_goes_must_be_there(refuses: Refuses) -> None:
    [found, *_] = refuses(WALK.replace('privilege: ALL, entity: "shelf:s/a"', 'privilege: READ, entity: "shelf:s/a"'))
    assert (found.code, found.message) == ("T204", "a row under `gone` is not in the state")


def test_an_effect_must_be_one(refuses: Refuses) -> None:
    [found, *_] = refuses(WALK.replace("grant ALL (shelf:s/a)", "grant ALL"))
    assert (found.code, found.message) == ("T004", "`grant ALL` is not an effect")


def test_a_state_that_changes_into_a_wrong_one(refuses: Refuses) -> None:
    [found] = refuses(WALK.replace("user:bob", "bob"))
    assert (found.code, found.span.line) == ("T102", 13)


def test_an_effect_on_what_the_request_does_not_name_is_a_finding(refuses: Refuses) -> None:
    text = WALK.replace('resource: "shelf:s/a", decision: allow', 'resource: "shelf:s", decision: allow')
    [found, *_] = refuses(text.replace("grant ALL (shelf:s/a)", "grant ALL (shelf)"))
    assert (found.code, found.span.line, found.help) == ("T103", 9, "name it in `resource`: `shelf:store/shelf`")
    assert found.message == "`grant ALL (shelf)` does not say of which `shelf`, so it cannot become a row"
    [found, *_] = refuses(WALK.replace("grant ALL (shelf:s/a)", "grant ALL (shlef:s/a)"))
    assert (found.code, found.message) == ("T103", "unknown entity type `shlef`")


@pytest.mark.parametrize(
    ("decision", "frozen"), [("deny", "effects: [grant ALL (x)]"), ("allow", "missing: [[READ (store:s)]]")]
)
def test_a_step_freezes_only_what_its_answer_has(refuses: Refuses, decision: str, frozen: str) -> None:
    step = f'{{user: ann, action: open, resource: "store:s", decision: {decision}, {frozen}}}'
    [found] = refuses(f"walkthroughs: [{{name: one, steps: [{step}]}}]")
    assert found.code == "T006"


STAFF = """\
privtab: 1
system: firm
version: "1"
entities:
  office: {desk:, user:, role:}
privileges: [SIT]
semantics: {owner: {kinds: [user]}}
tables:
  desk: {sit: SIT (desk) or owner (desk) or member (office)}
  user:
    remove: {requires: service admin, revokes: [members, memberships, assignments, grants, owners]}
    retire: {requires: service admin, revokes: owners}
  role: {delete: {requires: service admin, revokes: [assignments, grants]}}
"""

HELD = """\
walkthroughs:
  - name: ann leaves
    state:
      members: [{user: ann, of: "office:a"}, {user: ann, of: "office:b"}, {user: bob, of: "office:c"}]
      memberships: [{user: ann, group: cooks}, {user: ann, group: chefs}, {user: bob, group: cooks}]
      assignments:
        - {principal: "user:ann", role: sitter}
        - {principal: "user:ann", role: guest, scope: "office:b"}
        - {principal: "group:cooks", role: sitter}
      grants:
        - {grantee: "user:ann", effect: allow, privilege: SIT, entity: "desk:a/1"}
        - {grantee: "user:ann", effect: allow, privilege: SIT, entity: "desk:b/1"}
        - {grantee: "role:sitter", effect: allow, privilege: SIT, entity: "desk:a/2"}
        - {grantee: "role:guest", effect: allow, privilege: SIT, entity: "desk:b/2"}
      owners: [{entity: "desk:a/3", owner: "user:ann"}, {entity: "desk:b/3", owner: "user:ann"}, {entity: "desk:a/4", owner: "user:bob"}]
      service_admins: [{user: root}]
    steps:
"""


def _left(plan: CasePlan) -> State:
    """The rows that the last step of a walkthrough finds."""
    return plan.worlds[plan.cases[-1].world]


def test_a_removed_user_loses_what_is_in_the_office_that_they_left(reads: Reads) -> None:
    revoked = ", ".join(f'"revoke {table} (user:a/ann)"' for table in PRINCIPAL_TABLES)
    plan = reads(
        HELD
        + f'      - {{user: root, action: remove, resource: "user:a/ann", decision: allow, effects: [{revoked}]}}\n'
        + '      - {user: ann, action: sit, resource: "desk:a/3", decision: deny}\n',
        STAFF,
    )
    assert failed(plan) == []
    left = _left(plan)
    assert [user for user, _ in left.members] == ["ann", "bob"]
    assert left.memberships == (("bob", "cooks"),)
    assert [(a.principal, a.role) for a in left.assignments] == [("user:ann", "guest"), ("group:cooks", "sitter")]
    assert [str(g.entity) for g in left.grants] == ["desk:b/1", "desk:a/2", "desk:b/2"]
    assert [(str(e), owner) for e, owner in left.owners] == [("desk:b/3", "user:ann"), ("desk:a/4", "user:bob")]


def test_a_deleted_role_has_no_assignments(reads: Reads) -> None:
    plan = reads(
        HELD
        + '      - {user: root, action: delete, resource: "role:a/sitter", decision: allow,'
        + ' effects: ["revoke assignments (role:a/sitter)", "revoke grants (role:a/sitter)"]}\n'
        + '      - {user: ann, action: sit, resource: "desk:a/2", decision: allow}\n',
        STAFF,
    )
    left = _left(plan)
    assert [a.role for a in left.assignments] == ["guest"]
    assert [g.grantee for g in left.grants] == ["user:ann", "user:ann", "role:guest"]
