from __future__ import annotations

from collections.abc import Callable

import pytest

from privtab.state.raw import RawState

Read = Callable[..., RawState]


def test_rows_have_numbers(read: Read) -> None:
    raw = read('{"service_admins": [{"user": "root"}, {"user": 17}, {"user": 1.50}]}', "state.json")
    assert not raw.findings
    assert [(r.number, r.line, r.cells["user"]) for r in raw.rows["service_admins"]] == [
        (1, None, "root"),
        (2, None, "17"),
        (3, None, "1.50"),
    ]


@pytest.mark.parametrize(
    ("written", "code", "message"),
    [
        ("true", "S104", "`user` is the truth value true, not text"),
        ("NaN", "S104", "`user` is a number (NaN), not text"),
        ('["alice"]', "S104", "`user` is a list, not text"),
        ("{}", "S104", "`user` is a mapping, not text"),
        ("null", "S103", "`user` is null"),
        ('""', "S105", "`user` is empty"),
        ('"\\ud800"', "S104", "`user` is a lone surrogate, not text"),
    ],
)
def test_a_cell_that_is_not_text_is_a_finding(read: Read, written: str, code: str, message: str) -> None:
    raw = read(f'{{"service_admins": [{{"user": "root"}}, {{"user": {written}}}]}}', "state.json")
    (finding,) = raw.findings
    assert (finding.code, finding.message, finding.place.row) == (code, message, 2)
    assert len(raw.rows["service_admins"]) == 1


@pytest.mark.parametrize(
    ("text", "line"), [('{"members": [\n', 2), ('{"members": []\n,}', 2), ("{} {}", 1), ("{'a': 1}", 1)]
)
def test_broken_json_is_a_finding_with_its_line(read: Read, text: str, line: int) -> None:
    (finding,) = read(text, "state.json").findings
    assert (finding.code, finding.place.line) == ("S002", line)


def test_nesting_without_end_is_a_finding(read: Read) -> None:
    (finding,) = read("[" * 200_000, "state.json").findings
    assert finding.code == "S002"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a state is a mapping from tables to lists of rows, not a list"),
        ('"grants"', "a state is a mapping from tables to lists of rows, not text"),
        ('{"members": {"user": "a"}}', "`members` is a mapping, not a list of rows"),
        ('{"members": ["a"]}', "a row of `members` is text, not a mapping from columns to text"),
        ('{"members": [null]}', "a row of `members` is null, not a mapping from columns to text"),
    ],
)
def test_wrong_shapes_are_findings(read: Read, text: str, message: str) -> None:
    (finding,) = read(text, "state.json").findings
    assert (finding.code, finding.message) == ("S004", message)


def test_names_that_stand_twice_are_findings(read: Read) -> None:
    raw = read('{"service_admins": [{"user": "a", "user": "b"}, {"user": "c"}]}', "state.json")
    assert [(f.code, f.place.row) for f in raw.findings] == [("S106", 1)]
    assert [row.cells["user"] for row in raw.rows["service_admins"]] == ["c"]


def test_unknown_names_get_a_hint(read: Read) -> None:
    raw = read('{"Owners": [], "members": [{"user": "a", "of": "lake:l", "off": "x"}]}', "state.json")
    assert [(f.code, f.help) for f in raw.findings] == [
        ("S003", "did you mean `owners`?"),
        ("S101", "did you mean `of`?"),
    ]


def test_another_table_in_a_tables_own_file_is_a_finding(read: Read) -> None:
    raw = read({"members.json": '{"owners": []}'})
    assert [(f.code, f.help) for f in raw.findings] == [("S004", "put it into a file of its own, `owners.json`")]


def test_names_can_be_shown_whatever_they_hold(read: Read) -> None:
    raw = read('{"\\ud800": [], "members": [{"\\ud800": 1, "user": "a", "of": "lake:l"}]}', "state.json")
    assert [f.code for f in raw.findings] == ["S003", "S101"]
    assert all(f.message.encode() for f in raw.findings)
