"""Operations that give what the request names to whom it names: a store performs them as the policy says, whatever their names are."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_policy import asks, grant

from privtab.base import AccessDenied, Entity, UsageError
from privtab.pipeline import load_program, policy_artifacts
from privtab_server.store.authority import Authority
from privtab_server.store.guarded import DesiredChange, GuardedStore, WriteOptions
from privtab_server.store.store import Store
from privtab_server.store.view import View

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {schema: {table: }, user: , role: }}
privileges:
  CREATE: {on: [lake, schema]}
  SELECT: {on: [lake, schema, table]}
  MODIFY: {on: [schema, table]}
sets: {BOTH: [SELECT, MODIFY]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  lake:
    create: {requires: service admin, becomes: owner}
    entrust: {requires: owner (lake), delegates: any privilege, sensitive: true}
    grant: owner (lake)
  schema:
    use: CREATE/SELECT/MODIFY (schema)
    pass_on: {requires: named privilege (schema), delegates: any privilege, sensitive: true}
    hand_over: {requires: "owner (schema, lake)", delegates: owner, sensitive: true}
  table:
    read: SELECT (table)
    share: {with: {to: role}, requires: "owner (table, lake)", delegates: SELECT, sensitive: true}
    unshare: {requires: "owner (table, lake)", withdraws: BOTH, sensitive: true}
  role:
    appoint: {requires: owner (lake), delegates: assignments, sensitive: true}
"""
FREE = WriteOptions()


@pytest.fixture
def lake(tmp_path: Path) -> GuardedStore:
    """A store with the lake `l` of `root`, in which `ann` may read everything."""
    policy = tmp_path / "lake.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    store = Store.create(str(tmp_path / "lake.db"), load_program(policy), administrators=["root"])
    store.perform(asks("root", "create", "lake:l"))
    store.change(asks("root", "entrust", "lake:l"), add={"grants": [grant("user:ann", "SELECT", "lake:l")]})
    view = View(store, store.program, policy_artifacts(store.program).program)
    return GuardedStore(store, view, Authority(store.program))


def adding(user: str, table: str, row: dict[str, str], **more: object) -> DesiredChange:
    return DesiredChange(user=user, add={table: [row]}, **more)  # type: ignore[arg-type]


def test_an_operation_is_found_by_what_it_delegates(lake: GuardedStore) -> None:
    done = lake.carry_out("change", adding("root", "owners", {"entity": "schema:l/s", "owner": "user:sam"}), FREE)
    assert done.decision.rule == "lake/schema/hand_over"
    done = lake.carry_out(
        "change",
        adding(
            "root", "assignments", {"principal": "user:eve", "role": "l/reader"}, resource=Entity("role", "l/reader")
        ),
        FREE,
    )
    assert done.decision.rule == "lake/role/appoint"
    authority = lake.authority
    assert authority.operations("grants", "add", "table", ("SELECT",)) == ("share",)
    assert authority.operations("grants", "add", "table", ("MODIFY",)) == ()
    assert authority.operations("grants", "remove", "table", ("MODIFY",)) == ("unshare",)
    # Who may add may remove, where the policy does not tell them apart; and what has the name of a default delegates nothing.
    assert authority.operations("grants", "remove", "lake", ("CREATE",)) == ("entrust",)
    assert authority.operations("assignments", "add", "lake") == ()


def test_only_the_privilege_that_the_caller_holds_can_be_passed_on(lake: GuardedStore) -> None:
    done = lake.carry_out("change", adding("ann", "grants", grant("user:eve", "SELECT", "schema:l/s")), FREE)
    assert done.decision.rule == "lake/schema/pass_on"
    entry = lake.store.log()[-1]
    assert entry.request["context"]["privilege"] == "SELECT"
    for name in ("MODIFY", "CREATE"):
        with pytest.raises(AccessDenied, match="`pass_on` on schema:l/s"):
            lake.carry_out("change", adding("ann", "grants", grant("user:eve", name, "schema:l/s")), FREE)
    with pytest.raises(UsageError, match="one change for each of `MODIFY` and `SELECT`"):
        lake.carry_out("change", adding("ann", "grants", grant("user:eve", "BOTH", "schema:l/s")), FREE)


def test_the_privilege_in_the_request_is_that_of_the_rows(lake: GuardedStore) -> None:
    from dataclasses import replace

    from privtab.base import GivenAttributes

    request = replace(asks("ann", "pass_on", "schema:l/s"), attributes=GivenAttributes(request={"privilege": "SELECT"}))
    with pytest.raises(UsageError, match="names the privilege `SELECT`, and not grants:"):
        lake.store.change(request, add={"grants": [grant("user:eve", "MODIFY", "schema:l/s")]})


def test_rows_are_to_the_principal_that_the_request_names(lake: GuardedStore) -> None:
    row = grant("role:l/reader", "SELECT", "table:l/s/t")
    done = lake.carry_out("change", adding("root", "grants", row), FREE)
    assert done.decision.rule == "lake/table/share"
    other = {**row, "grantee": "role:l/writer"}
    with pytest.raises(UsageError, match="names `role:l/reader`, and not grants:"):
        lake.carry_out("change", adding("root", "grants", other, with_={"to": Entity("role", "l/reader")}), FREE)


def test_an_operation_delegates_nothing_else(lake: GuardedStore) -> None:
    def change(operation: str, entity: str, table: str, row: dict[str, str]) -> None:
        lake.store.change(asks("root", operation, entity), add={table: [row]})

    with pytest.raises(UsageError, match="`hand_over` on schema:l/s does not delegate grants:"):
        change("hand_over", "schema:l/s", "grants", grant("user:eve", "SELECT", "schema:l/s"))
    with pytest.raises(UsageError, match="`entrust` on lake:l delegates nothing on another entity"):
        change("entrust", "lake:l", "grants", grant("user:eve", "SELECT", "schema:l/s"))
    with pytest.raises(UsageError, match="`grant` on lake:l does not delegate grants:"):
        change("grant", "lake:l", "grants", grant("user:eve", "SELECT", "lake:l"))


def test_those_who_may_change_a_row_see_it(lake: GuardedStore) -> None:
    lake.carry_out("change", adding("ann", "grants", grant("user:eve", "SELECT", "schema:l/s")), FREE)
    seen = {user: lake.visible(user, ["grants"])[1]["grants"] for user in ("ann", "ben", "eve")}
    assert [row["grantee"] for row in seen["ann"]] == ["user:ann", "user:eve"]
    assert seen["ben"] == []
    assert [row["grantee"] for row in seen["eve"]] == ["user:eve"]
