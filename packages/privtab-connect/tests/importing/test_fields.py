"""What answers hold beside what is read: every import document names it, and whatever it does not name stops the import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jmespath import Options, compile  # noqa: A004
from ranger import LAKE

from privtab.base import FileError, UsageError
from privtab.pipeline import load_program
from privtab_connect.documents import documents
from privtab_connect.importing.answers import opened
from privtab_connect.importing.document import ImportDocument, ImportStep, load
from privtab_connect.importing.expression import FUNCTIONS, Expression
from privtab_connect.importing.run import ImportResult, run

HIERARCHY = LAKE.replace("semantics: {", "semantics: {hierarchy: [groups, roles], ")
PEOPLE = {"totalResults": 1, "Resources": [{"id": "1", "userName": "ann"}]}
GRAVITINO = "api/metalakes/m"
ROLE = {"name": "r", "securableObjects": [{"fullName": "m", "type": "METALAKE", "privileges": []}]}
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "scim": {
        "Users": PEOPLE,
        "Groups": {"totalResults": 1, "Resources": [{"id": "g", "displayName": "hr", "members": [{"value": "1"}]}]},
    },
    "unitycatalog": {
        "api/1.0/unity-control/scim2/Users": {"totalResults": 1, "Resources": [{"userName": "ann@x", "active": True}]},
        "catalogs": {"catalogs": [{"name": "c"}]},
        "permissions/catalog/c": {"privilege_assignments": [{"principal": "ann@x", "privileges": ["SELECT"]}]},
        "schemas": {"schemas": [{"name": "s"}]},
        "permissions/schema/c.s": {},
        "tables": {"tables": [{"name": "t", "columns": [{"name": "x"}]}]},
        "permissions/table/c.s.t": {},
    },
    "gravitino": {
        f"{GRAVITINO}/users": {"code": 0, "users": [{"name": "ann", "roles": ["r"]}]},
        f"{GRAVITINO}/groups": {"code": 0, "groups": []},
        f"{GRAVITINO}/roles": {"code": 0, "names": ["r"]},
        f"{GRAVITINO}/roles/r": {"code": 0, "role": ROLE},
        f"{GRAVITINO}/catalogs": {"code": 0, "identifiers": []},
    },
    "polaris": {
        "principal-roles": {"roles": [{"name": "e"}]},
        "principal-roles/e/principals": {"principals": [{"name": "etl"}]},
        "catalogs": {"catalogs": []},
    },
}


def imported(folder: Path, document: str, answers: Mapping[str, object], policy: str = HIERARCHY) -> ImportResult:
    (folder / "lake.yaml").write_text(policy, encoding="utf-8")
    for address, answer in answers.items():
        path = folder / "saved" / f"{address}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(answer), encoding="utf-8")
    values = {"metalake": "m"} if document == "gravitino" else {}
    with opened(str(folder / "saved")) as system:
        return run(load(document), system, load_program(folder / "lake.yaml"), values=values)


def test_items_without_an_id_are_told_apart_by_all_that_they_hold(tmp_path: Path) -> None:
    document = tmp_path / "people.yaml"
    document.write_text(
        documents("import")["scim"].read_text(encoding="utf-8").replace(", id: id}", "}").replace("id, unique", "id"),
        encoding="utf-8",
    )
    page = {**PEOPLE, "totalResults": 2}
    again = {**page, "Resources": [{"userName": "ann", "id": "1"}]}
    with pytest.raises(FileError, match="gives items twice"):
        imported(tmp_path, str(document), {"Users": page, "Users.startIndex=2": again})
    again = {**page, "Resources": [{"id": "1", "userName": "renamed"}]}
    answers = {**ANSWERS["scim"], "Users": page, "Users.startIndex=2": again}
    assert imported(tmp_path, str(document), answers).state is not None


def stops(found: ImportResult) -> set[str]:
    return {skipped.name for skipped in found.refused(strict=False, allow_partial=False)}


@pytest.mark.parametrize("document", ANSWERS)
def test_known_answers_are_taken(tmp_path: Path, document: str) -> None:
    assert not stops(imported(tmp_path, document, ANSWERS[document]))


def places(value: Any) -> list[dict[str, object]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [place for item in inner for place in places(item)] + [value] * isinstance(value, dict)


@pytest.mark.parametrize(
    ("document", "address", "number"),
    [(document, address, number) for document, answers in ANSWERS.items() for address, answer in answers.items()
     for number in range(len(places(answer)))],
)  # fmt: skip
def test_a_field_that_no_document_names_stops_the_import(
    tmp_path: Path, document: str, address: str, number: int
) -> None:
    answers = json.loads(json.dumps(ANSWERS[document]))
    places(answers[address])[number]["newRestriction"] = False
    found = imported(tmp_path, document, answers)
    (name,) = stops(found)
    assert name.split(".")[-1] == "newRestriction"
    assert not found.refused(strict=False, allow_partial=False, accept=[name])


@pytest.mark.parametrize(
    ("document", "address"),
    [("scim", "Users"), ("unitycatalog", "catalogs"), ("polaris", "catalogs"), ("polaris", "principal-roles/e/principals"),
     ("gravitino", f"{GRAVITINO}/users"), ("gravitino", f"{GRAVITINO}/roles"), ("gravitino", f"{GRAVITINO}/roles/r")],
)  # fmt: skip
@pytest.mark.parametrize("answer", [{"message": "session expired"}, {}, None, [], "no"], ids=str)
def test_an_answer_without_its_list_is_an_error(tmp_path: Path, document: str, address: str, answer: object) -> None:
    with pytest.raises(FileError, match=address.rpartition("/")[2]):
        imported(tmp_path, document, {**ANSWERS[document], address: answer})


def test_an_object_without_its_list_is_an_error_within_an_answer_too(tmp_path: Path) -> None:
    for role in ({}, {"name": "r"}):
        answers = {**ANSWERS["gravitino"], f"{GRAVITINO}/roles/r": {"code": 0, "role": role}}
        with pytest.raises(FileError, match=r"has no list `role.securableObjects"):
            imported(tmp_path, "gravitino", answers)
    whole = {"name": "r", "securableObjects": [{"fullName": "m", "type": "METALAKE"}]}
    answers = {**ANSWERS["gravitino"], f"{GRAVITINO}/roles/r": {"code": 0, "role": whole}}
    assert stops(imported(tmp_path, "gravitino", answers)) == {"role.securableObjects.privileges"}


def test_a_role_is_named_by_the_path_in_its_metalake(tmp_path: Path) -> None:
    users = {"code": 0, "users": [{"name": "a/nn", "roles": ["r/1"]}]}
    answers = {**ANSWERS["gravitino"], f"{GRAVITINO}/users": users, f"{GRAVITINO}/roles": {"code": 0, "names": []}}
    (row,) = imported(tmp_path, "gravitino", answers).state.assignments
    assert (row.principal, row.role) == ("user:a/nn", "m/r%2F1")


def test_a_user_who_is_suspended_is_no_member(tmp_path: Path) -> None:
    policy = HIERARCHY.replace("  metastore:\n", "  metastore:\n  metalake:\n")
    users = [
        {"name": name, "id": 1, "externalId": None, "enabled": name == "ann", "roles": ["r"]} for name in ("ann", "eli")
    ]
    answers = {**ANSWERS["gravitino"], f"{GRAVITINO}/users": {"code": 0, "users": users}}
    state = imported(tmp_path, "gravitino", answers, policy).state
    assert [user for user, _ in state.members] == ["ann"]
    assert [row.principal for row in state.assignments] == ["user:ann"]
    users[1]["enabled"] = "no"
    with pytest.raises(FileError, match="enabled"):
        imported(tmp_path, "gravitino", answers, policy)


@pytest.mark.parametrize("name", ["user:ann", "group:ann", "role:ann"])
def test_a_user_whose_name_begins_as_a_principal_is_no_member(name: str, tmp_path: Path) -> None:
    policy = HIERARCHY.replace("  metastore:\n", "  metastore:\n  metalake:\n")
    for each, expected in (("ann", ["ann"]), (name, [])):
        users = {"code": 0, "users": [{"name": each, "roles": []}]}
        found = imported(tmp_path, "gravitino", {**ANSWERS["gravitino"], f"{GRAVITINO}/users": users}, policy)
        assert [member for member, _ in found.state.members] == expected


def test_a_group_without_members_is_asked_for_by_itself(tmp_path: Path) -> None:
    listed = {"totalResults": 1, "Resources": [{"id": "g", "displayName": "hr"}]}
    with pytest.raises(FileError, match="no answer to `/Groups/g"):
        imported(tmp_path, "scim", {"Users": PEOPLE, "Groups": listed})
    group = {"id": "g", "displayName": "hr", "members": [{"value": "1"}]}
    found = imported(tmp_path, "scim", {"Users": PEOPLE, "Groups": listed, "Groups/g": group})
    assert found.state.memberships == (("ann", "hr"),)


def of_scim(folder: Path, people: list[dict[str, Any]], groups: list[dict[str, Any]]) -> ImportResult:
    answers = {"Users": people, "Groups": groups}
    listed = {name: {"totalResults": len(items), "Resources": items} for name, items in answers.items()}
    return imported(folder, "scim", listed)


@pytest.mark.parametrize("active", [False, "False", "false", "True", 0, 1, [], {}, None])
def test_who_is_not_plainly_active_is_in_no_group(active: object, tmp_path: Path) -> None:
    groups = ANSWERS["scim"]["Groups"]["Resources"]
    found = of_scim(tmp_path, [{"id": "1", "userName": "ann", "active": active}], groups)
    expected = {"deactivated-member"} if active is False else {"Resources.active", "missing-value"}
    assert (list(found.state.memberships), stops(found)) == ([], expected)


def test_two_groups_of_one_name_do_not_share_their_members(tmp_path: Path) -> None:
    people = [{"id": "1", "userName": "ann"}, {"id": "2", "userName": "bob"}]
    named = (("g", "hr", "1"), ("h", "hr", "2"), ("i", "it", "2"))
    groups = [{"id": id_, "displayName": name, "members": [{"value": member}]} for id_, name, member in named]
    found = of_scim(tmp_path, people, groups)
    assert list(found.state.memberships) == [("bob", "it")]
    assert {name: count for name, (_, count) in found.by_name.items()} == {"repeated-group": 2}
    assert found.refused(strict=False, allow_partial=False)


def test_two_users_of_one_name_do_not_share_their_groups(tmp_path: Path) -> None:
    for name in ("ann", "Ann"):
        people = [{"id": "2", "userName": "ann"}, {"id": "1", "userName": name}]
        with pytest.raises(FileError, match=r"have one `Resources.userName`, .*, compared without case"):
            of_scim(tmp_path, people, ANSWERS["scim"]["Groups"]["Resources"])
    with pytest.raises(FileError, match=r"have one `Resources.id`"):
        of_scim(tmp_path, [{"id": "1", "userName": "ann"}, {"id": 1, "userName": "bob"}], [])


def test_a_user_with_the_name_of_a_group_is_no_group(tmp_path: Path) -> None:
    found = of_scim(tmp_path, [{"id": "1", "userName": "group:it"}], ANSWERS["scim"]["Groups"]["Resources"])
    assert (list(found.state.memberships), [*found.by_name]) == ([], ["malformed-principal"])


@pytest.mark.parametrize("switch", ["false", 0, []])
def test_a_switch_is_true_or_false(switch: object, tmp_path: Path) -> None:
    policies = [{"id": 1, "name": "p", "isEnabled": switch}]
    with pytest.raises(FileError, match=r"policies.isEnabled.*not true or false"):
        imported(tmp_path, "ranger", {"service/plugins/policies": {"totalCount": 1, "policies": policies}})


def test_further_pages_are_files_of_their_own(tmp_path: Path) -> None:
    page = {**PEOPLE, "totalResults": 2}
    with pytest.raises(FileError, match=r"no answer to `/Users.*startIndex=2"):
        imported(tmp_path, "scim", {"Users": page, "Groups": ANSWERS["scim"]["Groups"]})
    for again in ({"id": "1", "userName": "ann"}, {"userName": "ann", "id": "1"}, {"id": "1", "userName": "renamed"}):
        with pytest.raises(FileError, match="gives items twice"):
            imported(tmp_path, "scim", {"Users": page, "Users.startIndex=2": {**page, "Resources": [again]}})
    changed = {"totalResults": 3, "Resources": [{"id": "2", "userName": "bob"}]}
    with pytest.raises(FileError, match="2 items, then 3"):
        imported(tmp_path, "scim", {"Users.startIndex=2": changed})
    whole = {"Users.startIndex=2": {**changed, "totalResults": 2}}
    assert imported(tmp_path, "scim", whole).state.memberships == (("ann", "hr"),)


def test_a_kept_answer_about_one_catalog_is_none_about_another(tmp_path: Path) -> None:
    rows = {"schemas": [{"name": "s", "owner": "ann@x"}]}
    about: dict[str, Any] = {
        f"permissions/{place}": {} for place in ("catalog/c", "catalog/d", "schema/c.s", "schema/d.s")
    }
    answers = {"catalogs": {"catalogs": [{"name": "c"}, {"name": "d"}]}, **about, "tables": {"tables": []}}
    policy = HIERARCHY.replace("  catalog:\n", "  catalog:\n    schema:\n      table:\n        column:\n", 1).replace(
        "  schema:\n    table:\n      column:\n  catalog", "  catalog"
    )
    with pytest.raises(UsageError, match=r"as in `schemas.catalog_name=d.json`"):
        imported(tmp_path, "unitycatalog", {**answers, "schemas": rows}, policy)
    tables: dict[str, Any] = {f"tables.catalog_name={name}&schema_name=s": {"tables": []} for name in "cd"}
    more = {"schemas.catalog_name=c": {"schemas": [{"name": "s"}]}, "schemas.catalog_name=d": rows, **tables}
    found = imported(tmp_path, "unitycatalog", {**answers, **more}, policy)
    assert [str(entity) for entity, _ in found.state.owners] == ["schema:d/s"]


def test_unity_catalog_as_its_servers_spell_it(tmp_path: Path) -> None:
    principal = "5f0e0d10-7b4c-4a2e-9c55-0b6f1f3c2d11"
    given = {"privilege_assignments": [{"principal": principal, "privileges": ["USE CATALOG", "USE_CATALOG"]}]}
    table = {"name": "t", "row_filter": {"function_name": "f"}, "columns": [{"name": "x", "mask": {"f": "g"}}]}
    more = {
        "catalogs": {"catalogs": [{"name": "c", "owner": principal, "isolation_mode": "ISOLATED"}]},
        "permissions/catalog/c": given,
        "tables": {"tables": [table]},
    }
    policy = LAKE.replace("  TABLE_READ", "  USE_CATALOG: {on: [catalog]}\n  TABLE_READ")
    found = imported(tmp_path, "unitycatalog", {**ANSWERS["unitycatalog"], **more}, policy)
    assert [(g.grantee, g.privilege) for g in found.state.grants] == [(f"user:{principal}", "USE_CATALOG")]
    assert found.state.owners[0][1] == f"user:{principal}"
    assert stops(found) == {"isolated-catalog", "tables.row_filter", "tables.columns.mask"}


CATALOGUE = """\
import: 1
title: what a catalogue holds and a state cannot say
steps:
  - sql: >-
      select 'row-policies' as kind, 3 as n, 'sales.orders' as example, 1 as narrows
      union all select 'comments', 2, 'sales', 0
    fields: [{"kind, example": text, "n, narrows": number}]
    not_taken: {name: "{kind}", each: "[@]", why: "{kind}, as of {example}", count: "{n}", denies: narrows == `1`}
"""


def test_a_query_lists_what_a_state_cannot_say(tmp_path: Path) -> None:
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE, encoding="utf-8")
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    with opened("sqlite://") as system:
        found = run(load(str(tmp_path / "catalogue.yaml")), system, load_program(tmp_path / "lake.yaml"))
    assert {name: (item.what, item.denies, count) for name, (item, count) in found.by_name.items()} == {
        "row-policies": ("row-policies, as of sales.orders", True, 3),
        "comments": ("comments, as of sales", False, 2),
    }
    assert stops(found) == {"row-policies"}


# --- expressions -----------------------------------------------------------------------------------------------------


def expressions(document: ImportDocument) -> set[str]:
    def of(step: ImportStep) -> set[str]:
        own = [*step.each, step.when, step.ask_when, *(rule.each for rule in step.not_taken)]
        inner = set[str]().union(*map(of, step.steps))
        return {expression.text for expression in own if expression is not None} | inner

    return set[str]().union(*map(of, document.steps))


GRAMMAR = {
    "a.b[0]", "a[-1].b", "a[9]", "a[::2]", "*.b", "a[].b[]", "a[*].b", "a[?b > `1`].b", "a[?b <= `1`]", "a[0] | b", "!a", "!c", "c || d",
    "[a, c][]", "{x: a, y: c}.x", "sort_by(a, &b)[].b", "max_by(a, &b)", "length(a)", "c == d", "c != `true`", "@", "a[?b == `0`]",
    "join('-', keys(@))", "type(c)", "not_null(e, c)", "map(&b, a)", "to_string(a)", "a[].{b: b, c: c}", "c && d", "d && c", "lower(e)",
}  # fmt: skip
DATA: list[Any] = [
    {"a": [{"b": 1}, {"b": 2, "c": []}], "c": 0, "d": False, "e": "X"},
    {"a": [{"b": 0}], "c": True, "d": 1, "e": "x", "policies": [{"resources": {"database": {"values": ["A"]}}}]},
    {"a": {"b": [1]}, "c": "", "d": [], "e": None},
    {"Resources": [{"members": None, "active": False}], "members": [{"value": "1", "type": "Group"}], "hierarchy": ["groups"]},
    {"known": True, "excluded": None, "type": 1, "privileges": ["SELECT"], "names": ["a"], "path": ["a"], "deny": "none"},
    [], None, "text", 3,
]  # fmt: skip


@pytest.mark.parametrize("text", sorted(GRAMMAR | set().union(*(expressions(load(d)) for d in documents("import")))))
def test_expressions_mean_what_the_library_says(text: str) -> None:
    library, ours = compile(text), Expression.parse(text)
    options = Options(custom_functions=FUNCTIONS)
    for data in DATA:
        try:
            expected = library.search(data, options=options)
        except Exception as error:  # noqa: BLE001
            with pytest.raises(type(error)):
                ours.of(data)
        else:
            assert json.dumps(ours.of(data)) == json.dumps(expected), data
