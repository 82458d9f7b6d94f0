"""A store changes only as the policy allows, whole or not at all, and its journal tells all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time_ns

import creator_role_policy
import pytest
from lake_policy import POLICY, asks, grant
from sqlalchemy import create_engine, text

from privtab.base import (
    AccessDenied,
    Entity,
    FileError,
    InvalidRequest,
    StateInvalid,
    UsageError,
    Window,
    moment_text,
    parse_moment,
)
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import from_tables, load_raw_state, validate
from privtab_server.errors import StoreConflict, StoreError
from privtab_server.store.database import TABLES_VERSION
from privtab_server.store.journal import Journal
from privtab_server.store.store import Outcome, Store

HOSTILE = (
    "o'neil",
    'say "x"; drop table journal; --',
    "a%2Fb 100%25",
    "名前 é\U0001f512",
    "e\u0301",
    "\\",
    "x" * 10_000,
)


DRIVE = """\
privtab: 1
system: drive
version: "1"
entities: {drive: {folder: {document: }}}
types: {folder: {flat: true}, document: {flat: true}}
privileges: [READ]
semantics: {owner: {kinds: [user]}}
tables:
  drive: {create: {requires: service admin, becomes: owner}}
  folder: {create: {requires: owner (drive), becomes: owner}, drop: owner (folder)}
  document: {create: {requires: owner (folder), becomes: owner}}
"""


@pytest.fixture
def lake(store: Store) -> Store:
    """A store with the lake `l`, which `root` owns."""
    store.perform(asks("root", "create", "lake:l"))
    return store


def same(store: Store) -> None:
    """What the store holds is what its journal says."""
    assert store.verify() == []
    assert store.rows() == store.rows(number=store.head().number)


def test_a_creator_becomes_owner_and_gets_what_the_row_grants(lake: Store) -> None:
    done = lake.perform(asks("root", "create", "schema:l/s"))
    assert [change.to_json() for change in done.changes] == [
        {"add": "owners", "row": {"entity": "schema:l/s", "owner": "user:root"}}
    ]
    lake.perform(asks("root", "create", "table:l/s/t"))
    rows = lake.rows()
    assert rows["service_admins"] == [{"user": "root"}]
    assert rows["grants"] == [grant("user:root", "SELECT", "table:l/s/t")]
    assert {row["entity"] for row in rows["owners"]} == {"lake:l", "schema:l/s", "table:l/s/t"}
    same(lake)


def test_the_first_active_role_of_a_creator_becomes_the_owner(tmp_path: Path) -> None:
    policy, state = creator_role_policy.files(tmp_path)
    store = Store.create(str(tmp_path / "studio.db"), load_program(policy))
    store.load(load_raw_state(state), actor="setup")
    create = asks("ann", "create", "dataset:w/new")
    for roles in (None, ()):
        with pytest.raises(InvalidRequest, match=r"needs context\.active_roles"):
            store.perform(replace(create, active_roles=roles))
    with pytest.raises(AccessDenied, match="does not hold the active role"):
        store.perform(replace(create, active_roles=("root", "etl")))
    assert not store.rows().get("owners")
    store.perform(replace(create, active_roles=("analyst", "etl")))
    assert store.rows()["owners"] == [{"entity": "dataset:w/new", "owner": "role:analyst"}]


def test_a_row_that_is_an_effect_too_is_added_once(lake: Store) -> None:
    row = {"entity": "schema:l/s", "owner": "user:root"}
    done = lake.change(asks("root", "create", "schema:l/s"), add={"owners": [row, row, {**row, "owner": "user:ann"}]})
    assert [change.row for change in done.changes] == [row, {**row, "owner": "user:ann"}]
    same(lake)


def test_a_denial_says_what_is_missing_and_writes_nothing(lake: Store) -> None:
    before = lake.head()
    with pytest.raises(AccessDenied, match="missing: ") as caught:
        lake.perform(asks("eve", "create", "schema:l/s"), request_id="r1")
    assert caught.value.decision.missing
    assert lake.head() == before
    lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "CREATE", "lake:l")]})
    # A denial is no outcome: the same request may be allowed later.
    assert not lake.perform(asks("eve", "create", "schema:l/s"), request_id="r1").repeated


def test_the_state_of_the_moment_decides(lake: Store) -> None:
    until = moment_text(time_ns() - 1)
    lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "CREATE", "lake:l", until=until)]})
    with pytest.raises(AccessDenied):
        lake.perform(asks("eve", "create", "schema:l/s"))


def test_a_new_entity_must_be_named_since_its_owner_becomes_a_row(lake: Store) -> None:
    with pytest.raises(InvalidRequest, match="name the new entity"):
        lake.perform(asks("root", "create", "schema:l"))
    same(lake)


def test_the_same_request_twice_is_done_once_and_another_under_its_id_is_refused(lake: Store) -> None:
    first = lake.perform(asks("root", "create", "schema:l/s"), request_id="r1")
    again = lake.perform(asks("root", "create", "schema:l/s"), request_id="r1")
    assert again.repeated
    assert (again.number, again.decision, again.changes) == (first.number, first.decision, first.changes)
    with pytest.raises(StoreConflict, match=f"belongs to another request, change {first.number}"):
        lake.perform(asks("root", "create", "schema:l/other"), request_id="r1")
    with pytest.raises(StoreConflict, match="another request"):
        lake.delete_entity(asks("root", "create", "schema:l/s"), request_id="r1")
    assert lake.head().number == first.number


def test_granting_is_an_operation_that_the_caller_must_be_allowed(lake: Store) -> None:
    rows = {"grants": [grant("role:reader", "READ", "lake:l")]}
    with pytest.raises(AccessDenied):
        lake.change(asks("eve", "grant", "lake:l"), add=rows)
    lake.change(asks("root", "grant", "lake:l"), add=rows)
    lake.change(
        asks("root", "grant", "role:l/reader"), add={"assignments": [{"principal": "user:eve", "role": "reader"}]}
    )
    lake.perform(asks("root", "create", "schema:l/s"))
    lake.perform(asks("root", "create", "table:l/s/t"))
    assert not lake.perform(asks("eve", "read", "table:l/s/t")).changes
    same(lake)


def test_a_request_authorises_rows_about_its_objects_alone(lake: Store) -> None:
    lake.perform(asks("root", "create", "schema:l/s"))
    lake.perform(asks("root", "create", "schema:l/other"))
    lake.change(asks("root", "grant", "schema:l/s"), add={"owners": [{"entity": "schema:l/s", "owner": "user:sam"}]})
    request = asks("sam", "grant", "schema:l/s")
    lake.change(request, add={"grants": [grant("user:eve", "SELECT", "table:l/s/t")]})
    for rows in (
        {"grants": [grant("user:sam", "SELECT", "schema:l/other")]},
        {"grants": [grant("user:sam", "SELECT", "lake:l")]},
        {"grants": [grant("user:sam", "SELECT", "table:l/s2/t")]},
        {"service_admins": [{"user": "sam"}]},
        {"assignments": [{"principal": "user:sam", "role": "admin"}]},
        {"memberships": [{"user": "sam", "group": "admins"}]},
    ):
        with pytest.raises(UsageError, match="does not authorise"):
            lake.change(request, add=rows)
    with pytest.raises(UsageError, match="does not authorise"):
        lake.change(request, remove={"owners": [{"entity": "lake:l", "owner": "user:root"}]})
    role = asks("root", "grant", "role:l/reader")
    with pytest.raises(UsageError, match="does not authorise"):
        lake.change(role, add={"assignments": [{"principal": "user:sam", "role": "admin"}]})
    same(lake)


def test_only_service_administrators_appoint_others(lake: Store) -> None:
    lake.change(asks("root", "grant", "lake:l"), add={"service_admins": [{"user": "sam"}]})
    lake.perform(asks("sam", "create", "lake:other"))
    same(lake)


def test_wrong_rows_refuse_the_whole_change_with_every_finding(lake: Store) -> None:
    before = lake.head()
    good, wrong = grant("user:eve", "SELECT", "lake:l"), grant("user:eve", "SELET", "lake:l")
    with pytest.raises(StateInvalid) as caught:
        lake.change(
            asks("root", "grant", "lake:l"),
            add={
                "grants": [good, wrong, {"grantee": "user:eve"}],
                "owners": [{"entity": "shelf:l", "owner": "user:eve"}],
            },
        )
    texts = "\n".join(map(str, caught.value.findings))
    assert "did you mean `SELECT`?" in texts
    assert "`privilege` is missing" in texts
    assert "shelf" in texts
    assert lake.head() == before


def test_rows_are_removed_as_they_are_and_only_if_they_are_there(lake: Store) -> None:
    row = grant("user:eve", "SELECT", "lake:l", until="2030-01-01T00:00:00Z")
    by = asks("root", "grant", "lake:l")
    # Kept in the canonical form: times in UTC.
    lake.change(by, add={"grants": [{**row, "effect": "ALLOW", "until": "2030-01-01T01:00:00+01:00"}]})
    assert lake.rows()["grants"] == [row]
    assert lake.change(by, add={"grants": [row]}).changes == ()
    with pytest.raises(StoreConflict, match="does not hold"):
        lake.change(by, remove={"grants": [grant("user:eve", "SELECT", "lake:l")]})
    lake.change(by, remove={"grants": [row]}, add={"grants": [{**row, "grantee": "user:ben"}]})
    assert lake.rows()["grants"] == [{**row, "grantee": "user:ben"}]
    same(lake)


def test_a_change_based_on_an_old_revision_is_refused(lake: Store) -> None:
    seen = lake.head().number
    by, ann, ben = (
        asks("root", "grant", "lake:l"),
        *({"entity": "lake:l", "owner": f"user:{n}"} for n in ("ann", "ben")),
    )
    lake.change(by, add={"owners": [ann]}, expect=seen)
    with pytest.raises(StoreConflict, match=f"change {seen + 1} by root concerns the same rows"):
        lake.change(by, add={"owners": [ben]}, expect=seen)
    with pytest.raises(StoreConflict, match="was expected"):
        lake.change(by, add={"owners": [ben]}, expect=99)
    # Other rows are free.
    lake.change(by, add={"grants": [grant("user:eve", "SELECT", "lake:l")]}, expect=seen)
    lake.change(by, add={"owners": [ben]}, expect=lake.head().number)


def test_after_a_conflict_the_rows_that_others_write_are_seen(lake: Store, url: str, program: Program) -> None:
    seen, by = lake.head().number, asks("root", "grant", "lake:l")
    for user in ("ann", "ben", "cem"):
        lake.change(by, add={"grants": [grant(f"user:{user}", "SELECT", "lake:l")]})
    with pytest.raises(StoreConflict) as kept:
        lake.change(by, add={"grants": [grant("user:ann", "USE", "lake:l")]}, expect=seen)
    other = Store.open(url, program)
    other.change(by, add={"grants": [grant("user:dan", "SELECT", "lake:l")]})
    assert lake.rows() == other.rows(), kept
    lake.change(by, add={"grants": [grant("user:eve", "SELECT", "lake:l")]})


def test_everything_on_a_deleted_entity_and_below_goes_with_it(lake: Store) -> None:
    for entity in ("schema:l/s", "schema:l/s2", "table:l/s/t", "table:l/s2/t"):
        lake.perform(asks("root", "create", entity))
    lake.change(
        asks("root", "grant", "lake:l"),
        add={
            "grants": [
                grant("user:eve", "SELECT", "schema:l/s"),
                grant("user:eve", "SELECT", "lake:l", until="2030-01-01T00:00:00Z"),
            ],
            "assignments": [{"principal": "user:eve", "role": "reader", "scope": "schema:l/s"}],
        },
    )
    done = lake.delete_entity(asks("root", "drop", "schema:l/s"))
    assert {change.action for change in done.changes} == {"remove"}
    rows = lake.rows()
    assert {row["entity"] for row in rows["owners"]} == {"lake:l", "schema:l/s2", "table:l/s2/t"}
    assert {row["entity"] for row in rows["grants"]} == {"lake:l", "table:l/s2/t"}
    assert rows["assignments"] == []
    same(lake)


def test_a_removed_user_loses_what_the_policy_says_whenever_it_holds(lake: Store) -> None:
    by = asks("root", "grant", "lake:l")
    lake.perform(asks("root", "create", "lake:other"))
    later, remaining = {"from": "2030-01-01T00:00:00Z"}, grant("user:eve", "SELECT", "lake:other")
    lake.change(asks("root", "grant", "lake:other"), add={"grants": [remaining]})
    lake.change(
        by,
        add={
            "grants": [grant("user:eve", "SELECT", "lake:l", **later), grant("user:ben", "SELECT", "lake:l")],
            "assignments": [
                {"principal": "user:eve", "role": "reader", **later},
                {"principal": "user:ben", "role": "reader"},
            ],
            "owners": [{"entity": "lake:l", "owner": "user:eve"}],
        },
    )
    lake.change(
        asks("root", "grant", "lake:other"),
        add={"assignments": [{"principal": "user:eve", "role": "r", "scope": "lake:other"}]},
    )
    lake.perform(asks("root", "remove", "user:l/eve"))
    rows = lake.rows()
    assert rows["grants"] == [remaining, grant("user:ben", "SELECT", "lake:l")]
    # What lies in the other lake stays.
    assert [row["principal"] for row in rows["assignments"]] == ["user:ben", "user:eve"]
    assert all(row["owner"] == "user:root" for row in rows["owners"])
    same(lake)


def test_a_loaded_state_is_the_same_state_and_only_a_new_store_is_loaded(
    store: Store, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab_server.store.store.MOST_CHANGES", 10)
    tables = {
        "grants": [grant(f"user:u{n}", "SELECT", f"table:l/s/t{n}") for n in range(25)],
        "owners": [{"entity": "lake:l", "owner": "root"}],
    }
    assert store.load(tables, actor="setup") == 26
    assert [len(entry.changes) for entry in store.log()] == [1, 10, 10, 6]
    assert {entry.action for entry in store.log(1)} == {"store load"}
    state, _ = validate(program, from_tables(tables, "given"))
    again, findings = validate(program, from_tables(store.rows(), "store"))
    assert findings == ()
    assert (sorted(map(str, again.grants)), again.owners) == (sorted(map(str, state.grants)), state.owners)
    with pytest.raises(UsageError, match="has changes already"):
        store.load(tables, actor="setup")
    same(store)


@pytest.mark.slow
def test_large_states_are_changed_like_small_ones(store: Store) -> None:
    # From 20,000 rows on, rows are checked by columns.
    grants = [grant(f"user:u{n}", "SELECT", f"table:l/s/t{n}") for n in range(21_000)]
    store.load({"grants": grants, "owners": [{"entity": "lake:l", "owner": "user:root"}]}, actor="setup")
    new = [
        grant("user:eve", "SELECT", "lake:l"),
        grant("user:eve", "SELECT", "schema:l/s", until="2030-01-01T00:00:00Z"),
    ]
    done = store.change(
        asks("root", "grant", "lake:l"), add={"grants": [*grants[5:8], *new, new[0]]}, remove={"grants": grants[3:4]}
    )
    assert [(change.action, change.row) for change in done.changes] == [
        ("remove", grants[3]),
        ("add", new[0]),
        ("add", new[1]),
    ]
    with pytest.raises(StateInvalid, match="did you mean `SELECT`"):
        store.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "SELET", "lake:l")]})
    assert len(store.rows()["grants"]) == 21_001
    same(store)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_pass_unchanged(store: Store, name: str) -> None:
    lake = f"lake:{name}"
    store.perform(asks("root", "create", lake), request_id=name[:200])
    who = name.replace("%", "percent")
    store.change(
        asks("root", "grant", lake),
        add={"grants": [grant(f"user:{who}/{who}", "SELECT", f"{lake}/s".replace("lake:", "schema:"))]},
    )
    assert store.rows()["owners"] == [{"entity": lake, "owner": "user:root"}]
    assert store.rows()["grants"] == [grant(f"user:{who}/{who}", "SELECT", f"schema:{name}/s")]
    same(store)
    store.delete_entity(asks("root", "grant", lake))
    assert store.rows()["owners"] == store.rows()["grants"] == []
    same(store)


def test_characters_that_no_name_has_are_refused(store: Store, program: Program, tmp_path: Path) -> None:
    with pytest.raises(StateInvalid):
        store.change(asks("root", "create", "lake:a"), add={"grants": [grant("user:a\0b", "SELECT", "lake:a")]})
    with pytest.raises(UsageError, match=r"request id holds the character U\+0000"):
        store.perform(asks("root", "create", "lake:a"), request_id="a\0b")
    with pytest.raises(UsageError, match="1 to 200 characters"):
        store.perform(asks("root", "create", "lake:a"), request_id="x" * 201)
    with pytest.raises(StateInvalid):
        Store.create(str(tmp_path / "other.db"), program, administrators=["a\nb"])
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("update journal set actor = 'eve' where number = 2", "change 2 was altered"),
        ("update journal set at = '2020-01-01T00:00:00Z' where number = 1", "change 1 was altered"),
        ("update journal set request_id = 'x' where number = 3", "change 3 was altered"),
        ("update journal set changes = replace(changes, 'eve', 'bob')", "change 3 was altered"),
        ("update state_grants set grantee = 'user:bob'", "in the place of"),
        ("update state_grants set change = 2", "in the place of"),
        ("delete from state_grants", "lacks the row"),
        ("insert into state_service_admins (id, \"user\", change) values ('x', 'eve', 1)", "which no change added"),
        ("delete from state_grants where 1; delete from journal where number = 3", "entries are missing"),
        (
            "delete from state_grants where 1; delete from state_owners where 1; delete from journal where number = 2",
            "change 2 is missing",
        ),
        ("update head set number = 2", "entries are missing"),
        ("update head set system = 'other'", "says otherwise"),
    ],
)
def test_manual_alterations_are_found(lake: Store, url: str, statement: str, found: str) -> None:
    lake.change(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "SELECT", "lake:l")]})
    same(lake)
    with create_engine(f"sqlite:///{url}").begin() as connection:
        for part in statement.split("; "):
            connection.execute(text(part))
    assert any(found in problem for problem in Journal.open(url).verify())


def test_any_moment_and_any_change_of_the_journal_is_a_state(lake: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {lake.head().number: lake.rows()}
    for number in range(5):
        lake.perform(asks("root", "create", f"schema:l/s{number}"))
        states[lake.head().number] = lake.rows()
    lake.delete_entity(asks("root", "drop", "schema:l/s0"))
    for number, rows in states.items():
        assert lake.rows(number=number) == rows
    entry = lake.log()[4]
    assert lake.rows(moment=parse_moment(entry.at)) == states[5]
    assert lake.rows(moment=parse_moment(entry.at) - 1) == states[4]
    assert lake.rows(moment=Window().end) == lake.rows()
    with pytest.raises(UsageError, match="did not exist"):
        lake.rows(moment=parse_moment(lake.log()[0].at) - 1)
    with pytest.raises(UsageError, match="has the changes 1 to 8, not 9"):
        lake.rows(number=9)
    # A clock that goes backwards gives no earlier entry.
    last = lake.log()[-1].at
    monkeypatch.setattr("privtab_server.store.journal.time_ns", lambda: 0)
    lake.perform(asks("root", "create", "schema:l/late"))
    assert lake.log()[-1].at == last
    same(lake)


def test_two_stores_on_one_database_see_each_other(lake: Store, url: str, program: Program) -> None:
    other = Store.open(url, program)
    other.perform(asks("root", "create", "schema:l/s"))
    lake.change(asks("root", "grant", "schema:l/s"), add={"grants": [grant("user:eve", "CREATE", "schema:l/s")]})
    assert other.perform(asks("eve", "create", "table:l/s/t")).number == 5
    lake.delete_entity(asks("eve", "drop", "table:l/s/t"))
    assert other.propose(asks("eve", "create", "table:l/s/t")).changes
    assert other.rows() == lake.rows()
    same(lake)


def test_a_proposal_writes_nothing(lake: Store) -> None:
    before = lake.head()
    planned = lake.propose(asks("root", "grant", "lake:l"), add={"grants": [grant("user:eve", "SELECT", "lake:l")]})
    assert [change.action for change in planned.changes] == ["add"]
    assert (len(planned.before.grants), len(planned.after.grants), planned.number) == (0, 1, before.number)
    assert lake.head() == before


def _another_version(url: str) -> None:
    with create_engine(f"sqlite:///{url}").begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))


def _no_tables(url: str) -> None:
    Path(url).write_bytes(b"")


def _no_database(url: str) -> None:
    Path(url).write_bytes(b"not a database at all" * 100)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_another_version, "have version 9999, and this privtab works with 0001"),
        (_no_tables, "`privtab store create` creates one"),
        (_no_database, "not a database"),
    ],
)
def test_opening_what_is_no_store_of_this_version_says_what_to_do(
    url: str, program: Program, spoil: Callable[[str], None], says: str
) -> None:
    if spoil is _another_version:
        Store.create(url, program)
    spoil(url)
    with pytest.raises(StoreError, match=says):
        Journal.open(url)


def test_a_database_that_cannot_be_a_store_is_refused(url: str, program: Program, store: Store) -> None:
    with pytest.raises(StoreError, match="holds a store already"):
        Store.create(url, program)
    same(store)
    with pytest.raises(FileError, match="no such store"):
        Store.open(f"{url}.db", program)
    for wrong in ("mysql://h/db", "sqlite://", ":memory:", "nonsense://x"):
        with pytest.raises(UsageError):
            Store.open(wrong, program)


def test_a_store_of_another_system_is_refused(store: Store, url: str, tmp_path: Path) -> None:
    path = tmp_path / "pond.yaml"
    path.write_text(POLICY.replace("system: lake", "system: pond"), encoding="utf-8")
    with pytest.raises(UsageError, match="is a store of lake, and the policy is of pond"):
        Store.open(url, load_program(path))
    assert store.system == "lake"


def test_tables_that_change_have_another_version(store: Store) -> None:
    """Stores that exist keep their tables: whoever changes `schema` says how to get there, and then gives another number here."""
    with store.database.reading() as connection:
        made = connection.execute(
            text("select type, name, sql from sqlite_master where sql is not null order by type, name")
        )
        statements = "\n".join(f"{kind} {name} {' '.join(sql.split())}" for kind, name, sql in made)
    digest = hashlib.sha256(statements.encode()).hexdigest()[:16]
    assert (TABLES_VERSION, digest) == ("0001", "11e16ddfe840776d"), statements


def test_of_several_entities_those_are_deleted_that_the_policy_allows(lake: Store) -> None:
    for entity in ("schema:l/a", "schema:l/b", "schema:l/c"):
        lake.perform(asks("root", "create", entity))
    rows = [{"entity": f"schema:l/{name}", "owner": "user:eve"} for name in "ac"]
    lake.change(asks("root", "grant", "lake:l"), add={"owners": rows})
    results = lake.delete_all([asks("eve", "drop", f"schema:l/{name}") for name in "abc"])
    assert [type(result) for result in results] == [Outcome, AccessDenied, Outcome]
    assert {row["entity"] for row in lake.rows()["owners"]} == {"lake:l", "schema:l/b"}
    same(lake)


def test_a_new_entity_with_a_flat_id_is_placed_in_what_the_request_names(tmp_path: Path) -> None:
    path = tmp_path / "drive.yaml"
    path.write_text(DRIVE, encoding="utf-8")
    drive = Store.create(str(tmp_path / "drive.db"), load_program(path), administrators=["root"])
    drive.perform(asks("root", "create", "drive:main"))
    done = drive.perform(asks("root", "create", "folder:drive:main/"), new=Entity("folder", "f1"))
    assert sorted(str(change.to_json()) for change in done.changes) == [
        "{'add': 'entities', 'row': {'entity': 'folder:f1', 'parent': 'drive:main'}}",
        "{'add': 'owners', 'row': {'entity': 'folder:f1', 'owner': 'user:root'}}",
    ]
    drive.perform(asks("root", "create", "document:folder:f1/"), new=Entity("document", "d1"))
    with pytest.raises(StoreConflict, match="is there already"):
        drive.perform(asks("root", "create", "document:folder:f1/"), new=Entity("document", "d1"))
    with pytest.raises(UsageError, match="is not new in"):
        drive.perform(asks("root", "create", "document:folder:f1/"), new=Entity("folder", "d2"))
    with pytest.raises(AccessDenied):
        drive.perform(asks("eve", "create", "document:folder:f1/"), new=Entity("document", "d2"))
    drive.delete_entity(asks("root", "drop", "folder:f1"))
    assert drive.rows()["entities"] == []
    same(drive)
