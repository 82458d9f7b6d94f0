from __future__ import annotations

from collections.abc import Callable
from typing import Any

import generated_programs
import pytest
import worlds

from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, validate
from privtab.state.nodes import Assignment, Grant, State

Checked = Callable[..., tuple[State, tuple[StateFinding, ...]]]
GOOD = {"grantee": "user:a", "effect": "allow", "privilege": "SELECT", "entity": "table:l/s/t"}


def found(result: tuple[State, tuple[StateFinding, ...]]) -> list[tuple[str, str, str | None]]:
    return [(f.code, f.message, f.help) for f in result[1]]


def test_good_rows_of_every_table_make_the_state(checked: Checked) -> None:
    state, findings = checked(
        members=[{"user": "user:alice", "of": "lake:l"}],
        memberships=[{"user": "alice", "group": "group:hr"}],
        assignments=[
            {"principal": "group:hr", "role": "role:keeper", "scope": "lake:l"},
            {"principal": "user:alice", "role": "anything"},
        ],
        grants=[{**GOOD, "effect": "DENY", "privilege": "ALL", "grantee": "role:a:b"}],
        owners=[{"entity": "settings:l/s", "owner": "alice"}],
        service_admins=[{"user": "arn:aws:root"}],
    )
    assert not findings
    assert state == State(
        members=(("alice", Entity("lake", "l")),),
        memberships=(("alice", "hr"),),
        assignments=(
            Assignment(principal="group:hr", role="keeper", scope=Entity("lake", "l")),
            Assignment(principal="user:alice", role="anything"),
        ),
        grants=(Grant(grantee="role:a:b", effect="deny", privilege="ALL", entity=Entity("table", "l/s/t")),),
        owners=((Entity("settings", "l/s"), "user:alice"),),
        service_admins=("arn:aws:root",),
    )


@pytest.mark.parametrize("features", [(), worlds.FEATURES, ("inside", *worlds.IN_SPARK), ("nested", "attributes")])
def test_the_rows_of_generated_states_are_good(features: tuple[str, ...]) -> None:
    for seed in range(32, 36):
        program = generated_programs.program(seed, *features)
        _, findings = validate(program, from_tables(worlds.state(program, seed).to_tables(), "world.json"))
        assert [finding for finding in findings if finding.severity == "error"] == []


def test_no_rows_are_an_empty_state(checked: Checked) -> None:
    assert checked() == (State(), ())


@pytest.mark.parametrize(
    ("change", "code", "message", "advice"),
    [
        ({"privilege": "SELET"}, "S130", "unknown privilege `SELET`", "did you mean `SELECT`?"),
        ({"privilege": "create table"}, "S130", "unknown privilege `create table`", "did you mean `CREATE_TABLE`?"),
        ({"privilege": "ALLL"}, "S130", "unknown privilege `ALLL`", "did you mean `ALL`?"),
        (
            {"privilege": "CREATE_TABLE"},
            "S131",
            "`CREATE_TABLE` cannot be granted on a `table`",
            "it can be granted on lake, schema",
        ),
        (
            {"privilege": "ADD_TABLE"},
            "S131",
            "`ADD_TABLE` cannot be granted on a `table`, since `CREATE_TABLE` cannot",
            None,
        ),
        ({"effect": "permit"}, "S132", "unknown effect `permit`", "an effect is `allow` or `deny`"),
        ({"effect": "alow"}, "S132", "unknown effect `alow`", "did you mean `allow`?"),
        ({"entity": "tabel:l/s/t"}, "S111", "unknown entity type `tabel`", "did you mean `table`?"),
        ({"entity": "table"}, "S110", "`table` is not an entity", "write `table:lake/schema/table`"),
        ({"entity": "l/s/t"}, "S110", "`l/s/t` is not an entity", "write `type:path`, the names from the root down"),
        (
            {"entity": "table:l/s"},
            "S112",
            "wrong depth: `table:l/s` has 2 names, a `table` path has 3",
            "write `table:lake/schema/table`",
        ),
        (
            {"entity": "settings:l/s/x"},
            "S112",
            "wrong depth: `settings:l/s/x` has 3 names, a `settings` path has 2",
            "write `settings:lake/schema`",
        ),
        ({"entity": "lake:"}, "S112", "wrong depth: `lake:` has 0 names, a `lake` path has 1", "write `lake:lake`"),
        ({"entity": "table:l//t"}, "S113", "a name in `table:l//t` is empty", "write `table:lake/schema/table`"),
        ({"entity": "table:l/s/"}, "S113", "a name in `table:l/s/` is empty", "write `table:lake/schema/table`"),
        ({"entity": "table:l/s/a%2fb"}, "S113", "malformed escape in `table:l/s/a%2fb`", "write `%2F`"),
        (
            {"entity": "table:l/s/a%20b"},
            "S113",
            "malformed escape in `table:l/s/a%20b`",
            "write `%` as `%25` and `/` as `%2F`; other characters stand for themselves",
        ),
        (
            {"grantee": "alice"},
            "S120",
            "`alice` is not a principal",
            "write `user:alice`, `group:alice` or `role:alice`",
        ),
        ({"grantee": "user:"}, "S120", "`user:` has no name", "write `user:name`"),
        ({"grantee": "User:alice"}, "S121", "unknown kind of principal `User` in `User:alice`", "did you mean `user`?"),
        (
            {"grantee": "x:alice"},
            "S121",
            "unknown kind of principal `x` in `x:alice`",
            "a principal is `user:name` or `group:name` or `role:name`",
        ),
    ],
)
def test_a_bad_grant_is_reported_and_left_out(
    checked: Checked, change: dict[str, str], code: str, message: str, advice: str | None
) -> None:
    if change.get("entity", "").startswith("settings:"):
        change = {**change, "privilege": "nothing"}
    state, findings = checked(grants=[GOOD, {**GOOD, **change}, {**GOOD, "grantee": "user:b"}])
    assert (code, message, advice) in [(f.code, f.message, f.help) for f in findings]
    assert {f.place.row for f in findings} == {2}
    assert {f.severity for f in findings} == {"error"}
    assert findings[0].row == {**GOOD, **change}
    assert [g.grantee for g in state.grants] == ["user:a", "user:b"]


def test_everything_wrong_with_a_row_is_reported_at_once(checked: Checked) -> None:
    state, findings = checked(grants=[{"grantee": "x", "effect": "y", "privilege": "Z", "entity": "w"}])
    assert state == State()
    assert [f.code for f in findings] == ["S110", "S120", "S130", "S132"]


@pytest.mark.parametrize("path", ["table:l/s/a%2Fb", "table:l/s/100%25", "table:l/s/a b:ü"])
def test_canonical_spelling_is_taken(checked: Checked, path: str) -> None:
    state, findings = checked(grants=[{**GOOD, "entity": path}])
    assert not findings
    assert str(state.grants[0].entity) == path


def test_a_policy_without_denials_and_owners_takes_none(checked: Checked, lean: Program) -> None:
    state, findings = checked(
        lean, grants=[{**GOOD, "effect": "deny"}, GOOD], owners=[{"entity": "lake:l", "owner": "user:a"}]
    )
    assert [(f.code, f.place.table, f.message) for f in findings] == [
        ("S133", "grants", "`shop` has no denials"),
        ("S140", "owners", "`shop` has no owners"),
    ]
    assert state.owners == ()
    assert len(state.grants) == 1


@pytest.mark.parametrize(
    ("owner", "code", "message"),
    [
        ("group:hr", "S141", "`group:hr` is a group; only a user can be an owner"),
        ("role:r", "S141", "`role:r` is a role; only a user can be an owner"),
        ("usr:a", "S121", "unknown kind of principal `usr` in `usr:a`"),
    ],
)
def test_only_the_declared_kinds_own(checked: Checked, owner: str, code: str, message: str) -> None:
    state, findings = checked(owners=[{"entity": "lake:l", "owner": owner}])
    assert state == State()
    assert [(f.code, f.message) for f in findings] == [(code, message)]


@pytest.mark.parametrize(
    ("table", "row", "code"),
    [
        ("members", {"user": "group:hr", "of": "lake:l"}, "S122"),
        ("members", {"user": "alice", "of": "lake:l/x"}, "S112"),
        ("memberships", {"user": "alice", "group": "role:r"}, "S122"),
        ("memberships", {"user": "User:alice", "group": "hr"}, "S121"),
        ("memberships", {"user": "groups:eng", "group": "hr"}, "S121"),
        ("memberships", {"user": "alice", "group": "Groups:eng"}, "S121"),
        ("members", {"user": "users:ann", "of": "lake:l"}, "S121"),
        ("memberships", {"user": "user:", "group": "hr"}, "S120"),
        ("assignments", {"principal": "role:r", "role": "s"}, "S122"),
        ("assignments", {"principal": "alice", "role": "s"}, "S120"),
        ("assignments", {"principal": "user:alice", "role": "user:s"}, "S122"),
        ("assignments", {"principal": "user:alice", "role": "s", "scope": "lake"}, "S110"),
        ("service_admins", {"user": "role:root"}, "S122"),
    ],
)
def test_the_wrong_kind_of_name_is_an_error(checked: Checked, table: str, row: dict[str, str], code: str) -> None:
    state, findings = checked(**{table: [row]})
    assert state == State()
    assert [(f.code, f.severity) for f in findings] == [(code, "error")]


@pytest.mark.parametrize(
    ("role", "scope", "problem"),
    [
        (
            "keeper",
            None,
            (
                "S150",
                "role `keeper` is assigned for one `lake`, and no scope is given",
                "write the scope as `lake:lake`",
            ),
        ),
        (
            "keeper",
            "schema:l/s",
            (
                "S151",
                "`schema:l/s` is not a scope for role `keeper`: it must be a `lake`",
                "write the scope as `lake:lake`",
            ),
        ),
        ("keeper", "lake:l", None),
        ("visitor", None, None),
        ("visitor", "table:l/s/t", None),
        ("unheard-of", None, None),
        ("unheard-of", "table:l/s/t", None),
    ],
)
def test_declared_roles_are_assigned_for_their_scope(
    checked: Checked, role: str, scope: str | None, problem: tuple[str, str, str] | None
) -> None:
    result = checked(assignments=[{"principal": "user:a", "role": role, **({"scope": scope} if scope else {})}])
    assert found(result) == ([problem] if problem else [])
    assert len(result[0].assignments) == (0 if problem else 1)


@pytest.mark.parametrize("scope", ["lake:l/x", "nothing:l"])
def test_a_bad_scope_takes_the_row_out_and_does_not_widen_it(checked: Checked, scope: str) -> None:
    for role in ("keeper", "unheard-of"):
        state, findings = checked(assignments=[{"principal": "user:a", "role": role, "scope": scope}])
        assert state == State()
        assert len(findings) == 1


def test_a_role_spelt_nearly_like_a_declared_one_is_warned_of(checked: Checked, lean: Program) -> None:
    rows: dict[str, Any] = {"assignments": [{"principal": "user:a", "role": "schema_admin"}]}
    state, findings = checked(lean, **rows)
    assert [(f.code, f.severity, f.help) for f in findings] == [
        ("S152", "warning", "did you mean `schema_administrator`?")
    ]
    assert len(state.assignments) == 1
    rows["grants"] = [{**GOOD, "grantee": "role:schema_admin"}]
    assert not checked(lean, **rows)[1]


@pytest.mark.parametrize("role", ["SchemaAdministrator", "schema administrator", "Schema-Administrator"])
def test_a_role_in_the_words_of_its_document_is_warned_of(checked: Checked, lean: Program, role: str) -> None:
    _, findings = checked(lean, assignments=[{"principal": "user:a", "role": role}])
    assert [(f.code, f.help) for f in findings] == [("S152", "did you mean `schema_administrator`?")]


def test_unused_service_administrators_are_warned_of(checked: Checked, lean: Program) -> None:
    state, findings = checked(lean, service_admins=[{"user": "a"}])
    assert [(f.code, f.severity) for f in findings] == [("S162", "warning")]
    assert state.service_admins == ("a",)


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("grants", {"grantee": "user:a\nrole:boss", "effect": "allow", "privilege": "SELECT", "entity": "table:l/s/t"}),
        ("assignments", {"principal": "user:a", "role": "r\nrole:boss"}),
        ("memberships", {"user": "a", "group": "g\nrole:boss"}),
    ],
)
def test_no_name_can_slip_another_principal_in(checked: Checked, table: str, row: dict[str, Any]) -> None:
    state, findings = checked(**{table: [row]})
    assert state == State()
    assert "S116" in {f.code for f in findings}
    assert all("holds the character U+000A" in f.message for f in findings if f.code == "S116")


def test_a_set_gives_those_of_its_members_that_the_type_knows(checked: Checked) -> None:
    row = {"grantee": "user:a", "effect": "allow", "privilege": "EVERYTHING", "entity": "table:l/s/t"}
    state, findings = checked(grants=[row])
    assert not findings
    assert len(state.grants) == 1


def test_a_repeated_row_is_warned_of_and_taken_once(checked: Checked) -> None:
    state, findings = checked(
        grants=[GOOD, {**GOOD, "effect": "deny"}, {**GOOD, "effect": "ALLOW"}],
        memberships=[{"user": "a", "group": "g"}, {"user": "user:a", "group": "group:g"}],
    )
    assert [(f.code, f.severity, f.place.table, f.place.row, f.message) for f in findings] == [
        ("S160", "warning", "grants", 3, "the row says the same as row 1 of `grants`"),
        ("S160", "warning", "memberships", 2, "the row says the same as row 1 of `memberships`"),
    ]
    assert [g.effect for g in state.grants] == ["allow", "deny"]
    assert state.memberships == (("a", "g"),)


@pytest.mark.parametrize(
    ("privilege", "entity", "advice"),
    [("ADD_TABLE", "lake:l", "use CREATE_TABLE"), ("OLD", "table:l/s/t", "use MODIFY")],
)
def test_deprecated_names_are_warned_of(checked: Checked, privilege: str, entity: str, advice: str) -> None:
    state, findings = checked(grants=[{**GOOD, "privilege": privilege, "entity": entity}])
    assert [(f.code, f.severity, f.message, f.help) for f in findings] == [
        ("S161", "warning", f"`{privilege}` is deprecated", advice)
    ]
    assert state.grants[0].privilege == privilege


def test_members_used_by_no_rule_are_warned_of(checked: Checked, lean: Program) -> None:
    rows = [{"user": "a", "of": entity} for entity in ("lake:l", "group:l/g", "schema:l/s", "table:l/s/t")]
    state, findings = checked(members=rows)
    assert [(f.code, f.place.row, f.help) for f in findings] == [
        ("S162", 4, "members count on `group`, `lake`, `schema`")
    ]
    assert len(state.members) == 4
    assert [f.place.row for f in checked(lean, members=rows)[1]] == [1, 2, 3, 4]


def test_blanks_around_a_name_are_an_error(checked: Checked) -> None:
    state, findings = checked(memberships=[{"user": "alice ", "group": "hr"}])
    assert [(f.code, f.severity, f.help) for f in findings] == [("S108", "error", "did you mean `alice`?")]
    assert not state.memberships


def test_findings_of_the_reading_come_along_sorted_by_place(checked: Checked) -> None:
    _, findings = checked(owners=[{"entity": "lake:l", "owner": "group:g"}], grants=[{}], nonsense=[])
    assert [f.code for f in findings] == ["S003", "S102", "S102", "S102", "S102", "S141"]
