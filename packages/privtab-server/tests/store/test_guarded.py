"""Users who are not trusted change and read a store only by the operations that the policy's tables determine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lake_policy import asks, grant
from tenants_policy import POLICY

from privtab.base import AccessDenied, Entity, InvalidRequest, StateInvalid, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab_server.errors import StoreConflict
from privtab_server.store.authority import Authority
from privtab_server.store.guarded import DesiredChange, GuardedStore, WriteOptions
from privtab_server.store.store import Outcome, Store
from privtab_server.store.view import View

FREE = WriteOptions()


def guarded(store: Store, settings: tuple[str, ...] = (), auditors: tuple[str, ...] = ()) -> GuardedStore:
    view = View(store, store.program, policy_artifacts(store.program).program)
    return GuardedStore(store, view, Authority(store.program, settings), auditors)


@pytest.fixture
def lake(store: Store) -> GuardedStore:
    """A store with the lake `l`, which `root` owns, and its schema `s`, which `sam` owns."""
    store.perform(asks("root", "create", "lake:l"))
    store.change(asks("root", "grant", "lake:l"), add={"owners": [{"entity": "schema:l/s", "owner": "user:sam"}]})
    return guarded(store, ("owners=grant",))


@pytest.fixture
def houses(tmp_path: Path) -> GuardedStore:
    """A store with the houses `a` of ann and `b` of ben."""
    policy = tmp_path / "houses.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    store = Store.create(str(tmp_path / "houses.db"), load_program(policy), administrators=["ann", "ben"])
    store.perform(asks("ann", "create", "house:a"))
    store.perform(asks("ben", "create", "house:b"))
    return guarded(store)


def rows(table: str, *listed: dict[str, str], user: str = "root", **more: object) -> DesiredChange:
    return DesiredChange(user=user, add={table: list(listed)}, **more)  # type: ignore[arg-type]


def test_rows_are_authorised_by_the_operation_on_the_entity_that_they_are_about(lake: GuardedStore) -> None:
    done = lake.carry_out("change", rows("grants", grant("user:eve", "SELECT", "schema:l/s"), user="sam"), FREE)
    assert done.decision.rule == "lake/schema/grant"
    # An operation on what contains the entity would be allowed, and does not count.
    lake.store.change(asks("root", "grant", "lake:l"), add={"owners": [{"entity": "table:l/s/t", "owner": "user:tim"}]})
    with pytest.raises(AccessDenied, match=r"`grant` on table:l/s/t"):
        lake.carry_out("change", rows("grants", grant("user:eve", "SELECT", "table:l/s/t"), user="sam"), FREE)
    with pytest.raises(UsageError, match="about one object"):
        lake.carry_out(
            "change",
            rows("grants", grant("user:eve", "SELECT", "table:l/s/t"), user="sam", resource=Entity("schema", "l/s")),
            FREE,
        )


def test_a_caller_cannot_choose_a_weaker_operation(lake: GuardedStore, houses: GuardedStore) -> None:
    with pytest.raises(UsageError, match="`create` does not authorise these rows: `grant` does"):
        lake.carry_out("change", rows("grants", grant("user:eve", "SELECT", "lake:l"), operation="create"), FREE)
    with pytest.raises(UsageError, match="`read_log` does not authorise"):
        houses.carry_out(
            "change",
            rows("grants", grant("user:eve", "ENTER", "room:a/r"), user="eve", operation="read_log"),
            FREE,
        )
    with pytest.raises(UsageError, match="`read_log` on `room` changes nothing"):
        houses.carry_out(
            "perform", DesiredChange(user="eve", operation="read_log", resource=Entity("room", "a/r")), FREE
        )
    with pytest.raises(UsageError, match="`read_log` does not delete"):
        houses.carry_out(
            "delete", DesiredChange(user="eve", operation="read_log", resource=Entity("room", "a/r")), FREE
        )


def test_rows_without_an_operation_are_refused(store: Store) -> None:
    store.perform(asks("root", "create", "lake:l"))
    plain = guarded(store)
    with pytest.raises(
        UsageError, match=r"for owners\.add, the policy has none of set_owner, change_owner on `lake`; `--authorise"
    ):
        plain.carry_out("change", rows("owners", {"entity": "lake:l", "owner": "user:eve"}), FREE)
    with pytest.raises(UsageError, match="about one object"):
        plain.carry_out("change", rows("service_admins", {"user": "eve"}), FREE)
    with pytest.raises(UsageError, match="about one object"):
        plain.carry_out(
            "change",
            rows("grants", grant("user:eve", "SELECT", "lake:l"), grant("user:eve", "SELECT", "schema:l/s")),
            FREE,
        )
    with pytest.raises(UsageError, match="give rows"):
        plain.carry_out("change", DesiredChange(user="root"), FREE)


def test_an_existing_entity_cannot_be_created_again(lake: GuardedStore) -> None:
    lake.carry_out("change", rows("grants", grant("user:eve", "CREATE", "lake:l")), FREE)
    desired = DesiredChange(user="eve", operation="create", resource=Entity("schema", "l/s"))
    with pytest.raises(StoreConflict, match="schema:l/s exists"):
        lake.carry_out("perform", desired, FREE)
    with pytest.raises(StoreConflict, match="schema:l/s exists"):
        lake.propose("perform", desired)
    # Who may not create it learns nothing.
    with pytest.raises(AccessDenied):
        lake.carry_out("perform", DesiredChange(user="nil", operation="create", resource=Entity("schema", "l/s")), FREE)
    new = DesiredChange(user="eve", operation="create", resource=Entity("schema", "l/new"))
    first = lake.carry_out("perform", new, WriteOptions(request_id="r1"))
    again = lake.carry_out("perform", new, WriteOptions(request_id="r1"))
    assert (again.number, again.repeated) == (first.number, True)


def test_a_change_of_rows_by_the_operation_that_deletes_deletes_nothing(lake: GuardedStore) -> None:
    schema = Entity("schema", "l/new")
    new = DesiredChange(user="root", operation="create", resource=schema, document={"comment": "c"})
    lake.carry_out("perform", new, FREE)
    owner = {"entity": str(schema), "owner": "user:root"}
    lake.store.change(asks("root", "drop", str(schema)), remove={"owners": [owner]})
    with pytest.raises(StoreConflict, match="schema:l/new exists"):
        lake.carry_out("perform", new, FREE)
    created = lake.created.now()
    assert created.audits[schema]["creator"] == "root"
    assert created.documents[schema] == {"comment": "c"}
    lake.carry_out("delete", DesiredChange(user="root", resource=schema), FREE)
    assert schema in created.documents, "what was read stays as it was"
    assert schema not in lake.created.now().documents
    lake.carry_out("perform", new, FREE)


def test_a_role_of_one_house_is_not_assigned_by_another(houses: GuardedStore) -> None:
    houses.carry_out("change", rows("grants", grant("role:a/chief", "ENTER", "house:a"), user="ann"), FREE)
    for role in ("a/chief", "chief"):
        assigned = {"principal": "user:ben", "role": role}
        with pytest.raises((AccessDenied, UsageError)):
            houses.carry_out(
                "change", rows("assignments", assigned, user="ben", resource=Entity("role", "b/chief")), FREE
            )
        with pytest.raises(AccessDenied, match="may not `grant_role`"):
            houses.carry_out(
                "change", rows("assignments", assigned, user="ben", resource=Entity("role", "a/chief")), FREE
            )
    with pytest.raises(UsageError, match="several entities"):
        houses.carry_out("change", rows("assignments", {"principal": "user:ben", "role": "chief"}, user="ben"), FREE)
    # A group of the same house holds the role, or one of a directory, which is of no house.
    for holder in ("group:a/staff", "group:staff", "user:eve"):
        houses.carry_out("change", rows("assignments", {"principal": holder, "role": "a/chief"}, user="ann"), FREE)
    houses.carry_out("change", rows("memberships", {"user": "ben", "group": "a/staff"}, user="ann"), FREE)
    with pytest.raises(AccessDenied, match="group:staff` is of no place"):
        houses.carry_out(
            "change",
            rows("memberships", {"user": "ben", "group": "staff"}, user="ben", resource=Entity("group", "b/staff")),
            FREE,
        )


def test_a_user_is_added_to_a_house_by_the_operation_on_the_user(houses: GuardedStore) -> None:
    done = houses.carry_out("change", rows("members", {"user": "eve", "of": "house:a"}, user="ann"), FREE)
    assert done.decision.rule == "houses/user/add"
    with pytest.raises(AccessDenied):
        houses.carry_out("change", rows("members", {"user": "eve", "of": "house:b"}, user="ann"), FREE)
    with pytest.raises(UsageError):
        houses.carry_out(
            "change",
            rows("members", {"user": "eve", "of": "house:b"}, user="ann", resource=Entity("user", "a/eve")),
            FREE,
        )
    houses.carry_out("delete", DesiredChange(user="ann", resource=Entity("user", "a/eve")), FREE)
    assert houses.store.rows()["members"] == []


def test_wrong_rows_tell_every_finding(lake: GuardedStore) -> None:
    with pytest.raises(StateInvalid) as caught:
        lake.carry_out(
            "change", rows("grants", grant("eve", "SELECT", "lake:l"), grant("user:eve", "SELET", "lak:l")), FREE
        )
    assert len(caught.value.findings) == 3
    with pytest.raises(InvalidRequest, match="unknown entity type"):
        lake.carry_out("delete", DesiredChange(user="root", resource=Entity("lak", "l")), FREE)


def test_users_read_what_names_them_and_what_they_may_change(lake: GuardedStore) -> None:
    lake.carry_out("change", rows("grants", grant("role:reader", "READ", "lake:l")), FREE)
    lake.store.change(
        asks("root", "grant", "lake:l"), add={"assignments": [{"principal": "user:eve", "role": "reader"}]}
    )
    tables = ("grants", "owners", "assignments", "members")
    _, eve = lake.visible("eve", tables)
    assert eve["grants"] == [grant("role:reader", "READ", "lake:l")]
    assert eve["owners"] == []
    assert [row["principal"] for row in eve["assignments"]] == ["user:eve"]
    _, sam = lake.visible("sam", tables)
    assert sam["grants"] == []
    assert [row["entity"] for row in sam["owners"]] == ["schema:l/s"]
    _, root = lake.visible("root", tables)
    assert len(root["owners"]) == 2
    _, nobody = lake.visible("nobody", tables)
    assert not any(nobody.values())
    _, everything = guarded(lake.store, auditors=("nobody",)).visible("nobody", tables)
    assert everything == {table: lake.store.rows()[table] for table in tables}


def test_a_deletion_is_proposed_as_it_is_carried_out(lake: GuardedStore) -> None:
    lake.carry_out("change", rows("grants", grant("user:eve", "SELECT", "schema:l/s"), user="sam"), FREE)
    desired = DesiredChange(user="sam", resource=Entity("schema", "l/s"))
    proposed = lake.propose("delete", desired)
    done = lake.carry_out("delete", desired, FREE)
    assert sorted(str(c.to_json()) for c in proposed.changes) == sorted(str(c.to_json()) for c in done.changes)
    assert not any("schema" in str(row) for listed in lake.store.rows().values() for row in listed)


def test_settings_name_operations_of_the_policy(program: Program) -> None:
    assert Authority(program, ["owners=grant"]).operation("owners", "remove", "schema") == "grant"
    only_added = Authority(program, ["owners.add=grant"])
    assert only_added.operation("owners", "add", "schema") == "grant"
    for text in ("owners", "owners=", "owners.take=grant", "service_admins=grant", "owners=grnt"):
        with pytest.raises(UsageError, match="--authorise"):
            Authority(program, [text])


def test_shipped_policies_determine_their_operations() -> None:
    authority = Authority(load_program("gravitino/1.1.0"))
    assert authority.operation("grants", "add", "table") == "grant_privilege"
    assert authority.operation("grants", "remove", "table") == "revoke_privilege"
    assert authority.operation("owners", "add", "role") == "set_owner"
    assert authority.operation("assignments", "add", "role") == "grant"
    assert authority.operation("members", "add", "user") == "add"
    assert authority.deleting("group") == "remove"
    # `grant_select` authorises no other privilege, so it is no default.
    mariadb, postgresql = Authority(load_program("mariadb/10.11")), Authority(load_program("postgresql/15"))
    assert mariadb.operations("grants", "add", "table", ("SELECT",)) == ("grant_select",)
    assert mariadb.operations("grants", "add", "table", ("INSERT",)) == ()
    assert postgresql.operations("grants", "remove", "table", ("GRANT_SELECT",)) == ("grant_select",)
    assert postgresql.operations("assignments", "add", "role") == ("grant",)
    # `remove` takes something out of the hosts of an instance, which stay.
    assert Authority(load_program("streams/teracloud")).deleting("instance_hosts") is None


def test_a_role_that_no_row_places_is_in_the_only_entity_that_can_contain_it(lake: GuardedStore) -> None:
    row = {"principal": "user:eve", "role": "reader"}
    done = lake.carry_out("change", rows("assignments", row), FREE)
    assert (done.decision.rule, len(done.changes)) == ("lake/role/grant", 1)
    # Who assigned it sees it, and takes it back.
    assert lake.visible("root", ["assignments"])[1] == {"assignments": [row]}
    assert lake.visible("sam", ["assignments"])[1] == {"assignments": []}
    assert lake.carry_out("change", DesiredChange(user="root", remove={"assignments": [row]}), FREE).changes


def test_a_role_that_several_entities_can_contain_is_given_as_the_resource(lake: GuardedStore) -> None:
    lake.store.perform(asks("root", "create", "lake:m"))
    lake.store.change(asks("root", "grant", "lake:m"), add={"owners": [{"entity": "lake:m", "owner": "user:max"}]})
    row = {"principal": "user:eve", "role": "reader"}
    with pytest.raises(UsageError, match="several entities: name one as `resource`"):
        lake.carry_out("change", rows("assignments", row), FREE)
    assert lake.carry_out("change", rows("assignments", row, resource=Entity("role", "l/reader")), FREE).changes
    assert lake.visible("root", ["assignments"])[1] == {"assignments": [row]}


def test_a_role_that_nothing_can_contain_is_given_as_the_resource(store: Store) -> None:
    with pytest.raises(
        UsageError, match="contains the role `reader`: name its entity as `resource`, in a sentence by `about ENTITY`"
    ):
        guarded(store).carry_out("change", rows("assignments", {"principal": "user:eve", "role": "reader"}), FREE)


def test_an_entity_with_a_flat_id_is_placed_where_its_creator_may_create(houses: GuardedStore) -> None:
    def create(new: str, user: str = "ann") -> DesiredChange:
        return DesiredChange(user=user, operation="create", resource=Entity("box", "house:a/"), new=Entity.parse(new))

    planned = houses.propose("perform", create("box:1"))
    once = WriteOptions(request_id="once")
    done = houses.carry_out("perform", create("box:1"), once)
    assert [(change.table, change.row) for change in done.changes] == [
        ("owners", {"entity": "box:1", "owner": "user:ann"}),
        ("entities", {"entity": "box:1", "parent": "house:a"}),
    ]
    assert planned.changes == done.changes
    assert houses.carry_out("perform", create("box:1"), once).repeated
    with pytest.raises(StoreConflict, match="there already"):
        houses.carry_out("perform", create("box:1"), FREE)
    with pytest.raises(AccessDenied):
        houses.carry_out("perform", create("box:2", user="ben"), FREE)
    with pytest.raises(UsageError, match="is not new in"):
        houses.carry_out("perform", create("room:a/x"), FREE)


def test_delete_all_deletes_what_is_allowed_and_reports_the_rest(houses: GuardedStore) -> None:
    recorded: list[tuple[Outcome, float]] = []
    houses = GuardedStore(houses.store, houses.view, houses.authority, record=lambda *done: recorded.append(done))
    for user, house in (("ann", "a"), ("ben", "b")):
        houses.carry_out(
            "perform", DesiredChange(user=user, operation="create", resource=Entity("role", f"{house}/r{house}")), FREE
        )
    wanted = [Entity("role", "b/rb"), Entity("house", "a"), Entity("box", "9"), Entity("user", "a/eve")]
    results = houses.delete_all([DesiredChange(user="ann", resource=entity) for entity in wanted], FREE)
    assert [type(result) for result in results] == [UsageError, UsageError, AccessDenied, Outcome]
    assert recorded[-1][0] is results[-1]
    assert len(recorded) == 3


def test_a_creation_that_another_one_preceded_is_a_conflict_even_if_no_row_would_change(store: Store) -> None:
    seen, create = store.head().number, asks("root", "create", "lake:l")
    store.perform(create, expect=seen)
    with pytest.raises(StoreConflict, match="concerns the same"):
        store.perform(create, expect=seen)
    assert store.head().number == seen + 1
    store.perform(asks("root", "create", "lake:k"), expect=seen)


def test_what_describes_an_entity_is_kept_in_the_journal_and_part_of_the_request(lake: GuardedStore) -> None:
    desired = DesiredChange(user="root", operation="drop", resource=Entity("schema", "l/s"))
    with pytest.raises(UsageError, match="changes nothing"):
        lake.carry_out("perform", desired, FREE)
    described = replace(desired, document={"comment": "old"})
    made = lake.carry_out("perform", described, WriteOptions(request_id="r"))
    assert (lake.store.log(made.number - 1)[0].request["document"], made.changes) == ({"comment": "old"}, ())
    assert lake.carry_out("perform", described, WriteOptions(request_id="r")).repeated
    with pytest.raises(StoreConflict, match="another request"):
        lake.carry_out("perform", replace(desired, document={"comment": "new"}), WriteOptions(request_id="r"))
    assert lake.store.verify() == []
