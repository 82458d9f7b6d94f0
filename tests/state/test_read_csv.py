from __future__ import annotations

from collections.abc import Callable

import pytest

from privtab.state.raw import RawState

Read = Callable[..., RawState]


def test_a_row_knows_the_line_it_begins_on(read: Read) -> None:
    raw = read({"memberships.csv": 'user,group\r\n\r\n"al\nice",hr\r\nbob,"h\nr"\nben,hr'})
    assert not raw.findings
    assert [(r.number, r.line, r.cells["user"]) for r in raw.rows["memberships"]] == [
        (1, 3, "al\nice"),
        (2, 5, "bob"),
        (3, 7, "ben"),
    ]


def test_the_order_of_columns_is_free_and_an_empty_scope_is_none(read: Read) -> None:
    raw = read({"assignments.csv": "role,scope,principal\nr,,user:a\nr,lake:l,user:b\n"})
    assert not raw.findings
    assert [dict(r.cells) for r in raw.rows["assignments"]] == [
        {"principal": "user:a", "role": "r"},
        {"principal": "user:b", "role": "r", "scope": "lake:l"},
    ]


def test_an_optional_column_may_be_left_off(read: Read) -> None:
    assert not read({"assignments.csv": "principal,role\nuser:a,r\n"}).findings


def test_no_rows_are_no_findings(read: Read) -> None:
    assert read({"members.csv": "user,of\n"}) == RawState()


def test_an_empty_cell_is_a_finding(read: Read) -> None:
    (finding,) = read({"members.csv": "user,of\n,lake:l\n"}).findings
    assert (finding.code, finding.message, finding.row) == ("S105", "`user` is empty", {"user": "", "of": "lake:l"})


@pytest.mark.parametrize(
    ("row", "message", "advice"),
    [
        ("alice", "the row has 1 cell(s), the header 2", None),
        ("a,b,c", "the row has 3 cell(s), the header 2", "put cells that hold commas in double quotes"),
    ],
)
def test_a_wrong_number_of_cells_is_a_finding(read: Read, row: str, message: str, advice: str | None) -> None:
    raw = read({"memberships.csv": f"user,group\n{row}\nbob,hr\n"})
    (finding,) = raw.findings
    assert (finding.code, finding.message, finding.help, finding.place.line) == ("S107", message, advice, 2)
    assert len(raw.rows["memberships"]) == 1


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("usr,group", [("S101", "did you mean `user`?"), ("S102", None)]),
        ("user,group,group", [("S106", None)]),
        ("user", [("S102", None)]),
        ("user;group", [("S101", "separate columns by commas")]),
        ("user\tgroup", [("S101", "separate columns by commas")]),
        (
            "alice,hr",
            [("S101", "the columns of `memberships` are user, group, from, until")] * 2 + [("S102", None)] * 2,
        ),
    ],
)
def test_a_wrong_header_is_reported_once_and_no_row_is_read(
    read: Read, header: str, found: list[tuple[str, str | None]]
) -> None:
    raw = read({"memberships.csv": f"{header}\na,b\nc,d\n"})
    assert [(f.code, f.help) for f in raw.findings] == found
    assert {f.place.line for f in raw.findings} == {1}
    assert raw.rows == {}


@pytest.mark.parametrize(("rest", "line"), [('a,"b\nc,d\n', 3), ('a,b\nc,"d"e\n', 4), ("a," + "x" * 200_000, 3)])
def test_broken_csv_is_a_finding_and_says_where_it_began(read: Read, rest: str, line: int) -> None:
    raw = read({"memberships.csv": f"user,group\nben,hr\n{rest}"})
    (finding,) = raw.findings
    assert (finding.code, finding.place.line) == ("S002", line)
    assert raw.rows["memberships"][0].cells["user"] == "ben"
