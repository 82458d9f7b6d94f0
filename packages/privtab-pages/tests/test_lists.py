"""Tables that say in words which roles may do what: they become roles with grants, and what is not plain is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_tables import allowed, read, table

from privtab.base import SourceFile
from privtab.pipeline import load_program
from privtab_pages.role_names import ranked


@pytest.mark.parametrize("head", ["Role", "Required role", "Who can do it?", "Allowed roles", "Available to"])
def test_cells_may_name_the_roles_that_may_take_an_action(head: str) -> None:
    rows = ("open | Guest, Admin", "shut | `Admin`", "sell | Owner / Admin", "see | guest")
    policy, found, reader = read(table(*rows, head=f"Action | {head}"))
    assert found == []
    assert reader.forms == ["Shop roles: read as actions x the roles that may take them, 4 rows"]
    assert allowed(policy)["shop"] == {
        "open": {"guest", "admin"},
        "shut": {"admin"},
        "sell": {"owner", "admin"},
        "see": {"guest"},
    }
    assert {mark.allowed for mark in reader.draft.marks} == {True}


@pytest.mark.parametrize(
    "cell",
    [
        "Admin (own)",
        "Admin only",
        "Anyone",
        "",
        "-",
        "any Admin",
        "Admin and above",
        "Admin*",
        "Owner: only own",
        "partial",
    ],
)
def test_a_cell_that_names_no_roles_for_sure_is_reported(cell: str) -> None:
    rows = ("open | Guest, Admin", f"shut | {cell}", "sell | Admin", "see | Guest")
    policy, (finding,), _ = read(table(*rows, head="Action | Role"))
    assert (finding.span.line, allowed(policy)["shop"]["shut"]) == (6, set())


@pytest.mark.parametrize(
    "line",
    [
        "guest < editor < admin",
        "Order: admin (2) > editor (1) > guest (0).",
        "guest<=editor",
        "The roles from lowest to highest: guest, editor and admin.",
        "Roles in descending order: Admin, Editor, Guest",
    ],
)
def test_a_least_role_allows_all_above(line: str) -> None:
    text = table("see | Guest", "open | Editor", head="Action | Minimum role") + f"\n{line}\n"
    policy, found, reader = read(text)
    above = {"guest", "editor"} | ({"admin"} if "admin" in line.lower() else set())
    assert (found, allowed(policy)["shop"]) == ([], {"see": above, "open": above - {"guest"}})
    assert any(not mark.allowed for mark in reader.draft.marks)


def test_a_least_role_without_an_order_allows_itself() -> None:
    policy, (finding,), reader = read(table("see | Guest", "open | Editor", head="Action | Minimum role"))
    assert "nothing says which roles are above" in finding.message
    assert allowed(policy)["shop"] == {"see": {"guest"}, "open": {"editor"}}
    assert all(mark.allowed for mark in reader.draft.marks)


def test_roles_above_a_named_one_are_allowed_where_the_page_orders_them() -> None:
    text = table("see | Guest and above", "open | Admin", head="Action | Role") + "\nguest < editor < admin\n"
    policy, found, _ = read(text)
    assert (found, allowed(policy)["shop"]) == ([], {"see": {"guest", "editor", "admin"}, "open": {"admin"}})


def test_several_rows_for_one_action_are_denied() -> None:
    policy, (finding,), _ = read(table("open | Guest", "open | Admin", "see | Admin", head="Action | Role"))
    assert (finding.span.line, allowed(policy)["shop"]) == (6, {"open": set(), "see": {"admin"}})


def test_roles_may_list_their_actions() -> None:
    rows = ("**viewer** | read", "editor | read, write", "admin | read, write, users:manage", "ghost | -")
    policy, found, _ = read(table(*rows, head="Role | Permissions"))
    assert found == []
    assert allowed(policy)["shop"] == {
        "read": {"viewer", "editor", "admin"},
        "write": {"editor", "admin"},
        "users_manage": {"admin"},
    }


def test_prose_of_a_role_is_one_action() -> None:
    rows = ("Guest | Views doors, except for those that are locked.", "Admin | Cannot sell", "Owner | Sells - or not")
    policy, (finding,), _ = read(table(*rows, head="Role | Permissions"))
    assert finding.span.line == 6
    assert allowed(policy)["shop"] == {
        "views_doors_except_for_those_that_are_locked": {"guest"},
        "cannot_sell": set(),
        "sells_or_not": {"owner"},
    }


def test_the_order_of_roles_is_found_beside_long_lines() -> None:
    assert ranked(["word " * 50_000, "guest < editor < admin"]) == ["guest", "editor", "admin"]


@pytest.mark.parametrize("length", [1_000, 1_001])
def test_a_text_that_is_too_long_for_a_name_is_named(length: int) -> None:
    policy, found, _ = read(table(f"Owner | {'a' * length}", "Guest | read, write", head="Role | Permissions"))
    assert policy is not None
    assert ("a" * 1_000 in policy) == (length == 1_000)
    assert [finding.message.partition("…")[2] for finding in found] == (
        [] if length == 1_000 else ["` cannot be the name of one operation: it has 1,001 letters"]
    )


def test_what_explains_or_excludes_is_no_action_of_its_own() -> None:
    rows = ("Owner | Full access, including billing", "Admin | Full access, excluding user removal")
    policy, found, _ = read(table(*rows, head="Role | Permissions"))
    assert found == []
    assert allowed(policy)["shop"] == {
        "full_access_including_billing": {"owner"},
        "full_access_excluding_user_removal": {"admin"},
    }


def test_roles_are_held_on_the_type_of_their_row() -> None:
    rows = ("Shop | Admin | sell, open | a form", "Door | Admin | open | a form", "Door | Guest | open | ")
    policy, (finding,), reader = read(
        table(*rows, head="Scope | Role | Permissions | How it is assigned", title="Roles")
    )
    assert "`How it is assigned` is not read: it says how roles are had" in finding.message
    assert allowed(policy) == {
        "shop": {"sell": {"admin"}, "open": {"admin"}},
        "door": {"open": {"admin", "guest"}},
    }
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {name: role.scopes for name, role in program.roles.items()} == {
        "admin": ("shop", "door"),
        "guest": ("door",),
    }
    assert reader.draft.scenarios(program, "page.yaml").count("decision: allow") == 3


def test_another_column_limits_what_roles_may_do() -> None:
    rows = ("Guest | see | by day", "Admin | see, open |")
    policy, (finding,), _ = read(table(*rows, head="Role | Permissions | Only if"))
    assert (finding.span.line, allowed(policy)["shop"]) == (3, {"see": {"admin"}, "open": {"admin"}})


def test_privileges_with_their_purpose_are_rows(tmp_path: Path) -> None:
    rows = ("open-door | Permission to open | 1", "shut-door | Permission to shut. Requires open-door. | 2")
    policy, (finding,), _ = read(table(*rows, head="Permission | Purpose | Value", title="Permissions"))
    assert finding.span.line == 6
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {name: rule.requires_text for (_, name), rule in program.rules.items()} == {
        "open_door": "open-door (entity)",
        "shut_door": "nobody",
    }


def test_a_privilege_without_a_type_has_none_of_the_row_above() -> None:
    rows = ("OPEN | opens | Door, Shop", "LOOK | looks | ", "SHUT | shuts | Door")
    policy, found, _ = read(table(*rows, head="Permission | Description | Channel type", title="Permissions"))
    assert found == []
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert [*program.rules] == [("door", "open"), ("door", "shut"), ("shop", "open"), ("system", "look")]


def test_rows_that_say_the_same_are_one() -> None:
    rows = ("see | READ", "see | READ", "open | READ", "open | WRITE")
    policy, found, _ = read(table(*rows, head="Operation | Requires"))
    assert [finding.span.line for finding in found] == [7, 8]
    assert (
        load_program(SourceFile.of("policy.yaml", policy or "")).rules["shop", "see"].requires_text == "READ (entity)"
    )


@pytest.mark.parametrize("note", ["Also needs WRITE", "only if it is day", "must be an owner"])
def test_a_note_that_asks_for_more_refuses_all(note: str) -> None:
    policy, (finding,), _ = read(
        table(f"see | READ | {note}", "open | READ | at night", head="Operation | Requires | Note")
    )
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert (finding.span.line, program.rules["shop", "see"].requires_text) == (5, "nobody")
    assert program.rules["shop", "open"].requires_text == "READ (entity)"


def test_a_row_may_name_a_role_an_entity_and_an_action() -> None:
    policy, found, _ = read(
        "role,resource,action\nadmin,users,manage\nguest,posts,read\nadmin,posts,read\n", "page.csv"
    )
    assert (found, allowed(policy)) == (
        [],
        {"users": {"manage": {"admin"}}, "posts": {"read": {"guest", "admin"}}},
    )


@pytest.mark.parametrize("head", ["Action | Role", "Role | Permissions"])
def test_lists_that_may_deny_are_not_read(head: str) -> None:
    text = table("open | Guest", "shut | Admin", head=head, title="Blocked actions of roles")
    assert read(text)[0] is None
    assert read(text, shape="holders" if head[0] == "A" else "permissions")[0] is not None


@pytest.mark.parametrize(
    ("head", "row"), [("Feature | Available to", "open | Pro, Enterprise"), ("Group | Operation", "Users | List users")]
)
def test_plans_and_groups_of_operations_are_no_roles(head: str, row: str) -> None:
    assert read(table(row, head=head, title="Roles"))[0] is None


def test_a_heading_within_a_table_that_limits_is_reported() -> None:
    text = "<h1>Shop roles</h1><table><tr><th>Action<th>Guest<th>Admin<tr><td>open<td>x<td>x"
    _, found, _ = read(f"{text}<tr><td colspan=3>Guests only by day</table>", "page.html")
    assert ["may limit the rows beside it" in finding.message for finding in found] == [True]
    assert read(f"{text}<tr><td colspan=3>Doors<tr><td>shut<td>x<td></table>", "page.html")[1] == []


def test_a_role_may_have_all_that_another_has() -> None:
    rows = (
        "Admin | All the permissions of Editor, plus manage members",
        "Viewer | view pages, view lists",
        "Editor | Everything in Viewer, plus create pages, edit pages",
    )
    policy, found, _ = read(table(*rows, head="Role | Permissions"))
    assert (found, allowed(policy)["shop"]) == (
        [],
        {
            "manage_members": {"admin"},
            "view_pages": {"viewer", "editor", "admin"},
            "view_lists": {"viewer", "editor", "admin"},
            "create_pages": {"editor", "admin"},
            "edit_pages": {"editor", "admin"},
        },
    )


def test_methods_and_paths_are_routes() -> None:
    rows = ("GET | /roles | roles.view", "`POST` | `/roles` | roles.manage", "delete | /roles/{id} | roles.manage")
    policy, found, _ = read(table(*rows, head="Method | Path | Permission"))
    assert found == []
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {name: rule.requires_text for (_, name), rule in program.rules.items()} == {
        "get_roles": "roles.view (entity)",
        "post_roles": "roles.manage (entity)",
        "delete_roles_id": "roles.manage (entity)",
    }


def test_a_role_may_be_called_read_only() -> None:
    policy, found, _ = read(table("see | Read only, Admin", "open | Admin", head="Action | Role"))
    assert (found, allowed(policy)["shop"]) == ([], {"see": {"read_only", "admin"}, "open": {"admin"}})


def test_permissions_may_be_asked_about() -> None:
    policy, found, _ = read(table("Can see | Guest, Admin", "Can open | Admin", head="Has permission? | Role"))
    assert (found, allowed(policy)["shop"]) == ([], {"can_see": {"guest", "admin"}, "can_open": {"admin"}})


@pytest.mark.parametrize("head", ["Action* | Role", "Action | Role (1)", "Action | Privileges [2]"])
def test_a_footnote_of_a_heading_may_say_more_of_each_row(head: str) -> None:
    policy, found, _ = read(table("see | Admin", "open | Admin", head=head, title="Shop"))
    assert found or policy is None
    assert "requires: Admin" not in (policy or "")
    assert "grants" not in (policy or "")
