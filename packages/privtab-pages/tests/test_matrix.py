"""Matrices of marks become roles with grants; what is no plain mark is reported, and denied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from page_tables import allowed, read, table

from privtab.base import Entity, SourceFile
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import Assignment, State
from privtab_analysis.permissions import what_can


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("✓", ""),
        ("✔️", "✖️"),
        ("✅", "❌"),
        ("x", ""),
        ("X", "-"),
        ("Yes", "No"),
        ("Y", "N"),
        ("●", "○"),
        ("•", ""),
        ("Full access", "None"),
        ("[x]", "[ ]"),
        (":white_check_mark:", ":x:"),
        (":heavy_check_mark:", ":no_entry:"),
        ("![yes](a.png)", "![no](b.png)"),
        ('<Icon icon="square-check" iconType="solid" />', '<Icon icon="xmark" iconType="solid" />'),
        ('<i class="fa fa-check"></i>', '<i class="fa fa-times"></i>'),
        ("✓", "x"),
        ("**Yes**", "—"),
        ("allowed", "not allowed"),
        ("Yes", "N/A"),
    ],
)
def test_marks_allow_and_deny(yes: str, no: str) -> None:
    policy, found, reader = read(table(f"open | {yes} | {yes}", f"shut | {no} | {yes}", f"sell | {no} | {no}"))
    assert found == []
    assert allowed(policy) == {"shop": {"open": {"guest", "admin"}, "shut": {"admin"}, "sell": set()}}
    assert reader.forms == ["Shop roles: read as actions x roles, 3 rows, 2 roles, 3 marks"]


@pytest.mark.parametrize(
    "cell",
    [
        "✓ (1)",
        "✓<sup>1</sup>",
        "✓ *",
        "(1)",
        "✓ own",
        "View",
        "Limited",
        "?",
        "◐",
        "2",
        "![](a.png)",
        "✓ / -",
        "~~✓~~",
        "<span hidden>✓</span>",
        "✓\u200b",
        "Yes, if allowed",
        "&#10003;&#x338;",
        "Y/N",
        "not ✓",
    ],
)
def test_what_is_no_plain_mark_is_reported_and_denied(cell: str) -> None:
    policy, found, _ = read(table("open | ✓ | ✓", f"shut | {cell} | ✓", "sell | - | ✓", "see | ✓ | ✓"))
    assert [finding.span.line for finding in found] == [6]
    assert "guest" not in allowed(policy)["shop"]["shut"]
    assert allowed(policy)["shop"]["open"] == {"guest", "admin"}


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        (
            ("open | ✓ | ✓", "shut | x | ✓", "sell |  | ✓"),
            {"open": {"guest", "admin"}, "shut": {"admin"}, "sell": {"admin"}},
        ),
        (("open | ✖ | ✖", "shut | | ✖"), None),
        (("open | ○ | ○", "shut | ✗ | ○"), None),
        (("open | x | \u00d7", "shut | | x"), None),
    ],
)
def test_crosses_and_circles_are_told_by_the_other_marks(
    rows: tuple[str, ...], more: dict[str, set[str]] | None
) -> None:
    policy, _, _ = read(table(*rows))
    assert policy is None if more is None else allowed(policy) == {"shop": more}


def test_a_legend_says_what_marks_mean() -> None:
    rows = ("open | Y | S", "shut | N | Y", "sell | N | Y")
    policy, found, _ = read(table(*rows) + "\nY = Allowed\n\nN = Not allowed\n\nS = Allowed only within the own shop\n")
    assert [finding.span.line for finding in found] == [5]
    assert allowed(policy)["shop"] == {"open": {"guest"}, "shut": {"admin"}, "sell": {"admin"}}
    policy, found, _ = read(table(*rows[1:], "open | Y | ✓") + "\nY: allowed by day only\n")
    assert allowed(policy)["shop"] == {"open": {"admin"}, "shut": set(), "sell": set()}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("legend", "read_as"),
    [
        ("In the table, ✓ means the role can do it and o means it cannot.", {"guest": False, "admin": True}),
        ("(o) stands for: allowed", {"guest": True, "admin": True}),
        ("o = can be enabled for single users", {"admin": True}),
        ("o = allowed, if asked", {"admin": True}),
        ("✓ indicates that users must be members; `o` - no", {"guest": False}),
        ("| Symbol | Meaning |\n|---|---|\n| o | Own orders only |\n| ✓ | Allowed |", {"admin": True}),
        ("| Symbol | Meaning |\n|---|---|\n| o | Never allowed |", {"guest": False, "admin": True}),
    ],
)
def test_a_legend_counts_only_if_all_its_words_are_plain(legend: str, read_as: dict[str, bool]) -> None:
    _, found, reader = read(table("open | Yes | Yes", "shut | o | ✓") + f"\n{legend}\n")
    assert {mark.role: mark.allowed for mark in reader.draft.marks if mark.operation == "shut"} == read_as
    assert [finding.span.line for finding in found if finding.span.line == 6] == [6] * (2 - len(read_as))


def test_cells_may_list_actions_beside_one_that_says_more() -> None:
    rows = ("Files | Read | Read / Write", "Lists | Read (limited) | Read / Write", "Notes | - | Read / Write")
    policy, found, _ = read(table(*rows, head="Feature | Viewer | Editor"))
    assert {finding.span.line for finding in found} == {6}
    assert allowed(policy) == {
        "files": {"read": {"viewer", "editor"}, "write": {"editor"}},
        "lists": {"read": {"editor"}, "write": {"editor"}},
        "notes": {"read": {"editor"}, "write": {"editor"}},
    }


def test_a_footnote_of_an_action_or_a_role_denies_until_it_is_accepted() -> None:
    text = table("open (1) | ✓ | ✓", "shut | ✓ | ✓", head="Action | Guest* | Admin") + "\n(1) only by day\n"
    policy, found, _ = read(text)
    assert [(finding.span.line, finding.span.column) for finding in found] == [(3, 12), (5, 3)]
    assert str(found[1].help).endswith("`--accept footnote`; the page says: (1) only by day")
    assert allowed(policy)["shop"] == {"open": set(), "shut": {"admin"}}
    policy, found, _ = read(text, accepted=("footnote",))
    assert (found, allowed(policy)["shop"]["open"]) == ([], {"guest", "admin"})


def test_rows_of_one_text_are_headings_within_the_table() -> None:
    rows = ("**Doors** | | |", "open | ✓ | ✓", "create | - | ✓", "**Shelves** | | |", "create | ✓ | ✓")
    policy, found, _ = read(table(*rows, head="Feature | Guest | Admin |"))
    assert found == []
    assert allowed(policy)["shop"] == {
        "open": {"guest", "admin"},
        "doors_create": {"admin"},
        "shelves_create": {"guest", "admin"},
    }


def test_a_row_without_marks_is_an_action_that_nobody_may_do() -> None:
    policy, _, _ = read(table("open | ✓ | ✓", "see | | ✓", "sell | | "))
    assert allowed(policy)["shop"]["sell"] == set()


def test_rows_twice_are_denied() -> None:
    policy, (finding,), reader = read(table("open | ✓ | ✓", "open | | ✓", "see | | ✓"))
    assert (finding.span.line, allowed(policy)["shop"]["open"]) == (6, set())
    assert not any(mark.operation == "open" for mark in reader.draft.marks)


def test_cells_may_list_the_actions_of_a_resource() -> None:
    rows = (
        "Feature Flags | - | View | View<br></br>Add<br></br>Edit",
        "Sources | - | View, Edit\\* | View and Edit",
        "Manage Team | - | - | Yes",
    )
    policy, (finding,), _ = read(table(*rows, head=" | No Access | Collaborator | Admin", title="Access"))
    assert finding.span.line == 6
    assert allowed(policy) == {
        "feature_flags": {"view": {"collaborator", "admin"}, "add": {"admin"}, "edit": {"admin"}},
        "sources": {"view": set(), "edit": {"admin"}} | {"view": {"admin"}},
        "system": {"manage_team": {"admin"}},
    }


def test_a_column_of_entities_says_the_types() -> None:
    policy, found, _ = read(
        table("Door | open | ✓ | ✓", " | shut | | ✓", "Shelf | fill | | ✓", head="Resource | Action | Guest | Admin")
    )
    assert found == []
    assert allowed(policy) == {"door": {"open": {"guest", "admin"}, "shut": {"admin"}}, "shelf": {"fill": {"admin"}}}


def test_a_column_that_may_ask_for_more_denies() -> None:
    policy, (finding,), _ = read(
        table("open | ✓ | ✓ | by day", "shut | ✓ | ✓ | ", head="Action | Guest | Admin | Only if")
    )
    assert "`Only if` is not read" in finding.message
    assert allowed(policy)["shop"] == {"open": set(), "shut": {"guest", "admin"}}


def test_roles_of_several_types_are_declared_once() -> None:
    text = table("open | ✓ | ✓", "see | | ✓", title="Project members permissions") + table(
        "open | ✓ | ✓", "see | ✓ | ✓", title="Group members permissions"
    )
    policy, found, _ = read(text)
    assert found == []
    assert allowed(policy) == {
        "project": {"open": {"guest", "admin"}, "see": {"admin"}},
        "group": {"open": {"guest", "admin"}, "see": {"guest", "admin"}},
    }
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {name: role.scopes for name, role in program.roles.items()} == dict.fromkeys(
        ("guest", "admin"), ("project", "group")
    )
    # Held on a group, one role would give its rights on the projects of the group, which the page does not say.
    policy, found, _ = read(text, inside={"project": "group"})
    assert (found, allowed(policy)["project"]["see"]) == ([], {"project_admin"})


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("Shop roles. Administrators have all permissions.", "administrator"),
        ("PAGE admins can do everything", "admin"),
        ("The super-user can do anything in that checks never fail.", ""),
        ("Project administrators have all permissions.", ""),
        ("Administrators have all permissions but one.", ""),
    ],
)
def test_who_may_do_everything_passes_every_row(line: str, role: str) -> None:
    text = table("open | ✓ | ✓", "see | - | ✓", head="Action | Guest | Clerk") + f"\n{line}\n"
    unread = "\n" + table("drop | WRITE", "sell | see below", head="Operation | Requires", title="Shop")
    policy, (finding,), reader = read(text + unread)
    assert (finding.span.line, bool(reader.forms[2:])) == (15, bool(role))
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    known = Assignment(principal="user:ben", role="guest", scope=Entity("shop", "main"))
    state = State(assignments=(known,), service_admins=(role,) if role else ())
    may = {allowed.operation for allowed in what_can(Reference(program, state), state, role or "admin").allowed}
    assert may == ({"open", "see", "drop"} if role else set())
    assert (f"user: {role or 'admin'}" in reader.draft.scenarios(program, "page.yaml")) == bool(role)


def test_a_role_of_the_table_is_what_the_table_says() -> None:
    policy, found, _ = read(table("open | ✓ | - ", "see | ✓ | ✓") + "\nAdmins have all permissions.\n")
    assert (found, allowed(policy)["shop"]["open"]) == ([], {"guest"})


def test_a_role_may_be_called_like_a_privilege() -> None:
    policy, found, _ = read(
        table("see | Yes | No | Yes", "open | No | No | Yes", head="Permission | Power user | Usage | Admin")
    )
    assert (found, allowed(policy)["shop"]) == ([], {"see": {"power_user", "admin"}, "open": {"admin"}})


def test_rows_of_roles_are_grants() -> None:
    policy, found, _ = read(table("reader | x | | ", "writer | x | x | ", head="Role | Select | Insert | Drop"))
    assert found == []
    assert allowed(policy)["shop"] == {"select": {"reader", "writer"}, "insert": {"writer"}, "drop": set()}


@pytest.mark.parametrize("title", ["Plans", "Roles"])
def test_plans_are_no_roles(title: str) -> None:
    text = table("SSO | - | ✓ | ✓", head="Feature | Free | Premium | Ultimate", title=title)
    policy, _, _ = read(text)
    assert policy is None
    policy, _, _ = read(text, shape="roles")
    assert policy is not None


def test_marks_of_privileges_are_required_together() -> None:
    rows = ("ANALYZE | Y | Y | ", "DROP | | | Y", "LOAD | | Y (output) | ", "SHOW | Y | | ")
    head, legend = "Action | Select | Insert | Ownership", "\nY: Privilege required.\n"
    policy, (finding,), _ = read(table(*rows, head=head, title="Privileges") + legend)
    assert finding.span.line == 7
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {
        name: rule.requires_text for (_, name), rule in program.rules.items() if rule.requires_text != "nobody"
    } == {
        "analyze": "SELECT (entity) and INSERT (entity)",
        "drop": "owner (entity)",
        "show": "SELECT (entity)",
    }


def test_privileges_in_columns_are_required_on_what_the_columns_name() -> None:
    rows = (
        "append | NO | N/A | WRITE",
        "mkdirs | NO | WRITE | N/A",
        "own | YES | N/A | N/A",
        "list | NO | N/A | READ, WRITE",
        "stat | NO | N/A | N/A",
    )
    policy, found, _ = read(table(*rows, head="Operation | Ownership | Parent | Final", title="Checks"))
    assert [finding.span.line for finding in found] == [9]
    program = load_program(SourceFile.of("policy.yaml", policy or ""))
    assert {
        name: rule.requires_text for (_, name), rule in program.rules.items() if rule.requires_text != "nobody"
    } == {
        "append": "WRITE (final_object)",
        "list": "READ (final_object) and WRITE (final_object)",
        "mkdirs": "WRITE (parent_object)",
        "own": "owner (entity)",
    }


def test_marks_that_may_mean_two_things_are_asked_about() -> None:
    text = table("open | x | ", "shut | | x", head="Thing | Alpha | Beta", title="Overview")
    policy, _, reader = read(text)
    assert policy is None
    assert "--shape roles" in str(reader.unread[0])
    assert allowed(read(text, shape="roles")[0])["system"]["open"] == {"alpha"}


def test_a_draft_is_a_policy_with_a_scenario_for_each_cell(privtab: Callable[..., Any], tmp_path: Path) -> None:
    page, policy = tmp_path / "page.md", tmp_path / "shop.yaml"
    page.write_text(table("open | ✓ | ✓", "shut | ✓ (1) | ✓", "sell | - | -"), encoding="utf-8")
    refused = privtab("import", page, "-o", policy)
    assert (refused.code, policy.exists()) == (1, False)
    assert "Shop roles: read as actions x roles, 3 rows, 2 roles, 4 marks" in refused.err
    assert "page.md:6:10" in refused.err
    assert privtab("import", page, "-o", policy, "--allow-partial").code == 0
    assert privtab("lint", policy).code == 0
    tested = privtab("test", policy)
    assert (tested.code, "5 cases passed" in tested.out) == (0, True)


@pytest.mark.parametrize("head", ["MFA required", "Denied to", "Approval", "Only if", "Not in trials"])
def test_a_column_of_marks_that_may_ask_for_more_is_no_role(head: str) -> None:
    policy, (finding,), _ = read(table("open | ✓ | ✓ | ✓", "shut | - | ✓ | ", head=f"Action | Guest | Admin | {head}"))
    assert f"the column `{head}` is not read" in finding.message
    assert allowed(policy)["shop"] == {"open": set(), "shut": {"admin"}}


@pytest.mark.parametrize("title", ["What roles cannot do", "Denied roles", "Restricted members"])
def test_a_table_whose_marks_may_deny_is_not_read(title: str) -> None:
    text = table("open | ✓ | ✓", "shut | | ✓", title=title)
    assert read(text)[0] is None
    assert read(text, shape="roles")[0] is not None


@pytest.mark.parametrize(
    ("head", "note", "denied"),
    [
        ("Notes", "by day", {"guest", "admin"}),
        ("Notes", "Guests: by day", {"guest"}),
        ("Notes", "Guests and admins: by day", {"guest", "admin"}),
        ("Notes", "Guests: by day. Not on Sundays.", {"guest", "admin"}),
        ("Notes", "Guests: by day<br>Not on Sundays", {"guest", "admin"}),
        ("Notes", "Strangers: by day", {"guest", "admin"}),
        ("Notes", "", set()),
        ("Description", "Opens a door", set()),
        ("Description", "A read-only look through the door", set()),
        ("Description", "Opens a door that the user owns, if asked", {"guest", "admin"}),
    ],
)
def test_what_a_note_may_limit_is_denied_and_reported(head: str, note: str, denied: set[str]) -> None:
    text = table(f"open | ✓ | ✓ | {note}", "shut | - | ✓ |", head=f"Action | Guest | Admin | {head}")
    policy, found, _ = read(text)
    assert [(finding.span.line, finding.name) for finding in found] == [(5, "left-out")] * bool(denied)
    assert allowed(policy)["shop"] == {"open": {"guest", "admin"} - denied, "shut": {"admin"}}
    policy, found, _ = read(text, accepted=[head])
    assert (found, allowed(policy)["shop"]["open"]) == ([], {"guest", "admin"})
    assert note in " ".join(str(policy).split()) or "<br>" in note


def test_notes_of_roles_without_a_mark_limit_nothing() -> None:
    text = table("shut | - | ✓ | Guests: by day", head="Action | Guest | Admin | Notes")
    assert read(text)[1] == []


@pytest.mark.parametrize("head", ["Guest, Editor", "Guest / Editor", "Guest and Editor"])
def test_a_heading_may_name_several_roles(head: str) -> None:
    policy, found, _ = read(table("open | ✓ | ✓", "shut | - | ✓", head=f"Action | {head} | Admin"))
    assert (found, allowed(policy)["shop"]["open"]) == ([], {"guest", "editor", "admin"})


def test_a_role_of_two_columns_is_denied() -> None:
    policy, found, _ = read(table("open | ✓ | - | ✓", head="Action | Guest | Guest, Editor | Admin"))
    assert [finding.span.column for finding in found] == [12, 20]
    assert allowed(policy)["shop"] == {"open": {"admin"}}


def test_a_heading_with_all_roles_above_needs_their_order() -> None:
    text = table("open | ✓ | ✓", head="Action | Guest | Editor+")
    policy, (finding,), _ = read(text)
    assert "nothing says which roles are above `Editor`" in finding.message
    assert allowed(policy)["shop"] == {"open": {"guest"}}
    policy, found, _ = read(text + "\nguest < editor < admin\n")
    assert (found, allowed(policy)["shop"]) == ([], {"open": {"guest", "editor", "admin"}})


def test_circles_deny_where_nothing_else_does() -> None:
    policy, found, _ = read(table("open | :heavy_check_mark: | :heavy_check_mark:", "shut | O | :heavy_check_mark:"))
    assert (found, allowed(policy)["shop"]["shut"]) == ([], {"admin"})
    policy, found, _ = read(table("open | ✓ | ✓", "shut | O | ✓", "sell | - | ✓"))
    assert [finding.span.line for finding in found] == [6]


def test_a_list_with_a_mark_is_not_read_as_all_its_actions() -> None:
    policy, (finding,), _ = read(
        table("Door | View, Edit | Yes", "Shelf | View | View", head=" | Guest | Admin", title="Access")
    )
    assert (finding.span.line, "cannot read `Yes (of what?)`" in finding.message) == (5, True)
    assert allowed(policy)["door"] == {"view": {"guest"}, "edit": {"guest"}}


def test_tables_of_one_type_are_told_apart_by_their_headings() -> None:
    tables = "".join(
        table("view | ✓ | ✓", "add | | ✓", title=title).replace("# ", "### ", 1) for title in ("Issues", "Pages")
    )
    policy, found, _ = read(f"## Project permissions\n\n{tables}")
    assert found == []
    assert allowed(policy) == {
        "project": {
            "view": {"guest", "admin"},
            "add": {"admin"},
            "pages_view": {"guest", "admin"},
            "pages_add": {"admin"},
        }
    }


@pytest.mark.parametrize(
    "again", ["**Action** | **Owner** | **Editor**", "Action | Owner | Editor", "Action | Guest | Admin"]
)
def test_a_row_of_headings_begins_another_table(again: str) -> None:
    policy, found, _ = read(table("open | ✓ | ✓", again, "sell | ✓ | -"))
    assert found == []
    assert allowed(policy)["shop"]["sell"] == {"guest" if "Guest" in again else "owner"}


def test_a_row_that_may_be_of_headings_ends_the_table() -> None:
    policy, found, _ = read("Action,Guest,Admin\nopen,x,x\n\nTask,Owner,Editor\nsell,x,\n", "page.csv")
    assert "`Task` may begin another table: nothing below is read" in [finding.message for finding in found]
    assert allowed(policy) == {"system": {"open": {"guest", "admin"}}}


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("Action,User,Admin\nopen,All,All\nshut,None,Full\n", {"open": {"user", "admin"}, "shut": {"admin"}}),
        ("Action,User,Admin\nopen,1,1\nshut,0,1\n", {"open": {"user", "admin"}, "shut": {"admin"}}),
        ("Shop roles\nas of today\n\nAction,User\nopen,x\nshut,\n", None),
        ("Shop\nas of today\n\nAction,User,Admin\nopen,x,x\nshut,,x\n", {"open": {"user", "admin"}, "shut": {"admin"}}),
    ],
)
def test_csv_of_other_marks_and_titles(text: str, may: dict[str, set[str]] | None) -> None:
    policy, found, _ = read(text, "page.csv")
    assert (found, policy and [*allowed(policy).values()]) == ([], may and [may])


def test_numbers_that_are_no_marks_are_reported() -> None:
    policy, found, _ = read("Action,User,Admin\nopen,1,yes\nshut,2,yes\nsell,0,yes\n", "page.csv")
    assert [finding.span.line for finding in found] == [2, 3, 4]
    assert allowed(policy)["system"]["open"] == {"admin"}
