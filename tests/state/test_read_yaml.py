from __future__ import annotations

from collections.abc import Callable

import pytest

from privtab.state.raw import RawState

Read = Callable[..., RawState]


def test_every_row_knows_its_line(read: Read) -> None:
    raw = read("members:\n  # a comment\n  - user: alice\n    of: lake:l\n\n  - {user: bob, of: 'lake:l'}\n")
    assert [(row.number, row.line) for row in raw.rows["members"]] == [(1, 3), (2, 6)]


@pytest.mark.parametrize(
    "written", ["17", "0x1F", "1.50", "1e3", "no", "on", "y", "2024-01-01", "'true'", '"null"', "!!str null"]
)
def test_numbers_and_words_are_taken_as_they_are_written(read: Read, written: str) -> None:
    raw = read(f"service_admins:\n- user: {written}\n")
    assert not raw.findings
    assert raw.rows["service_admins"][0].cells["user"] == written.removeprefix("!!str ").strip("'\"")


@pytest.mark.parametrize(
    ("written", "code", "message"),
    [
        ("true", "S104", "`user` is the truth value true, not text"),
        ("[alice]", "S104", "`user` is a list, not text"),
        ("{alice: bob}", "S104", "`user` is a mapping, not text"),
        ("!!binary YQ==", "S104", "`user` is a value with the tag tag:yaml.org,2002:binary, not text"),
        ("null", "S103", "`user` is null"),
        ("", "S103", "`user` is null"),
        ("~", "S103", "`user` is null"),
        ("''", "S105", "`user` is empty"),
    ],
)
def test_a_cell_that_is_not_text_is_a_finding(read: Read, written: str, code: str, message: str) -> None:
    raw = read(f"service_admins:\n- user: root\n- user: {written}\n- user: ben\n")
    (finding,) = raw.findings
    assert (finding.code, finding.message, finding.place.row, finding.place.line) == (code, message, 2, 3)
    assert [row.cells["user"] for row in raw.rows["service_admins"]] == ["root", "ben"]


def test_a_null_scope_is_no_scope(read: Read) -> None:
    raw = read(
        "assignments:\n- {principal: 'user:a', role: r, scope: null}\n- {principal: 'user:b', role: r, scope: ''}\n"
    )
    assert not raw.findings
    assert [set(row.cells) for row in raw.rows["assignments"]] == [{"principal", "role"}] * 2


def test_unknown_names_get_a_hint(read: Read) -> None:
    raw = read("grantz: []\nmembers:\n- {usr: alice, of: 'lake:l'}\n")
    table, column, missing = raw.findings
    assert (table.code, table.help, table.place.line) == ("S003", "did you mean `grants`?", 1)
    assert (column.code, column.help, column.place.row) == ("S101", "did you mean `user`?", 1)
    assert (missing.code, missing.message) == ("S102", "column `user` is missing in `members`")
    assert raw.rows == {}


def test_a_name_that_is_near_to_nothing_gets_the_list(read: Read) -> None:
    (finding,) = read("xyzzy: []\n").findings
    assert (
        finding.help
        == "the tables are members, memberships, assignments, grants, owners, service_admins, attributes, entities"
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("- {user: root}\n", 1, "a state is a mapping from tables to lists of rows, not a list"),
        ("grants\n", 1, "a state is a mapping from tables to lists of rows, not the text `grants`"),
        ("members: {user: alice}\n", 1, "`members` is a mapping, not a list of rows"),
        ("members:\n- alice\n", 2, "a row of `members` is the text `alice`, not a mapping from columns to text"),
        ("members:\n-\n", 2, "a row of `members` is null, not a mapping from columns to text"),
        ("members:\n- [a, b]\n", 2, "a row of `members` is a list, not a mapping from columns to text"),
    ],
)
def test_wrong_shapes_are_findings(read: Read, text: str, line: int, message: str) -> None:
    (finding,) = read(text).findings
    assert (finding.code, finding.message, finding.place.line) == ("S004", message, line)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("members: [\n", 2, "not YAML"),
        ("members:\n\t- user: a\n", 2, "not YAML"),
        ("members:\n- {user: alice, of: 'lake:l'}\n--- \nowners: []\n", 3, "a second document"),
        ("members:\n- &a {user: alice, of: 'lake:l'}\n- *a\n", 2, "anchor `&a`"),
        ("members:\n- *a\n", 2, "alias `*a`"),
        ("members:\n- {[a]: b}\n", 2, "a key is a list"),
        ("members:\n- {user: \x01}\n", 2, "not YAML"),
    ],
)
def test_broken_yaml_is_a_finding_with_its_line(read: Read, text: str, line: int, words: str) -> None:
    (finding,) = read(text).findings
    assert (finding.code, finding.place.line) == ("S002", line)
    assert words in finding.message


def test_names_that_stand_twice_are_findings(read: Read) -> None:
    raw = read("service_admins:\n- {user: a, user: b}\n- {user: c}\nservice_admins:\n- {user: d}\n")
    assert [(f.code, f.place.line) for f in raw.findings] == [("S106", 2), ("S106", 4)]
    assert [row.cells["user"] for row in raw.rows["service_admins"]] == ["c"]


def test_another_table_in_a_tables_own_file_is_a_finding(read: Read) -> None:
    raw = read({"members.yaml": "members:\n- {user: a, of: 'lake:l'}\nowners:\n- {entity: 'lake:l', owner: a}\n"})
    (finding,) = raw.findings
    assert (finding.code, finding.place.line, finding.help) == (
        "S004",
        3,
        "put it into a file of its own, `owners.yaml`",
    )
    assert list(raw.rows) == ["members"]


def test_nested_values_are_skipped_as_a_whole(read: Read) -> None:
    raw = read("other: {a: [{b: [c]}], d: {}}\nservice_admins: [{user: root}]\n")
    assert [f.code for f in raw.findings] == ["S003"]
    assert len(raw.rows["service_admins"]) == 1
