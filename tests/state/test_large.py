"""Large states are read and checked by columns: the same state, places and findings as row by row."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privtab.base.attributes import Attribute, Attributes
from privtab.base.moments import parse_moment
from privtab.ir.nodes import Program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.holdings import Holdings
from privtab.state.index import index_bytes
from privtab.state.load import from_tables, load_raw_state, validate_with_places
from privtab.state.names import Places
from privtab.state.nodes import TABLES, ColumnRows, State
from privtab.state.raw import TABLE_COLUMNS
from privtab_analysis.changes import AddToGroup, Assign, apply

MOMENT = parse_moment("2026-03-15T00:00:00Z")
Checked = tuple[State, Places, tuple[StateFinding, ...]]

USERS = [
    "ann",
    "ben",
    "user:ann",
    "user:",
    "user:user:x",
    "group:hr",
    "User:ann",
    " cem",
    "dé",
    "%2A",
    "*",
    "a*",
    "a\tb",
    "arn:aws:x",
]
GROUPS = ["hr", "group:hr", "it", "user:it", "?", "group:group:hr", "h r"]
ROLES = ["keeper", "Keeper", "schema-administrator", "visitor", "role:visitor", "own", "keepr", "%"]
PRINCIPALS = [
    "user:ann",
    "group:hr",
    "group:hrs",
    "role:keeper",
    "role:own",
    "ann",
    "usr:ann",
    "role:",
    "group: it",
    "user:a:b",
    "role:*",
    "role:schema-administrator",
]
ENTITIES = [
    "lake:l", "schema:l/s", "table:l/s/t", "table:l/s", "table:l//t", "table:l/s/", "settings:l/s", "user:l/ann",
    "group:l/hr", "lake", "lake:", "tabel:l/s/t", "table:l/s/*", "table:l/s/a%2Fb", "table:l/s/a%b", "*:l", "lake:l ",
    "table:l/ s/t", "lake:" + "x" * 70_000,
]  # fmt: skip
PRIVILEGES = ["SELECT", "MODIFY", "OLD", "READ", "ADD_TABLE", "ALL", "EVERYTHING", "MANAGE", "SELEKT", "*", "SELECT "]
TIMES = [
    "",
    "",
    "2026-03-01T00:00:00Z",
    "2026-03-01T01:00+01:00",
    "2026-04-01T00:00:00.5Z",
    "9999-12-31T00:00Z",
    "2026-03-01",
]
CELLS = {
    "user": USERS,
    "group": GROUPS,
    "of": ENTITIES,
    "principal": PRINCIPALS,
    "role": ROLES,
    "scope": ["", "lake:l", "schema:l/s", "table:l/s/t", "lake:*"],
    "grantee": PRINCIPALS,
    "effect": ["allow", "deny", "ALLOW", "Deny", "alow"],
    "privilege": PRIVILEGES,
    "entity": ENTITIES,
    "owner": [*USERS, *PRINCIPALS],
    "from": TIMES,
    "until": TIMES,
    "attribute": ["class", "rank", "badges", "claas", "device"],
    "value": ["public", "red", "3", "3", "03", "x ", "a\tb"],
}
ATTRIBUTES = Attributes(
    user={
        "rank": Attribute(type="integer", lowest=0, highest=9, origins=("state",)),
        "badges": Attribute(type="set", values=("red", "blue"), origins=("state", "request")),
        "device": Attribute(type="text"),
    },
    entity={
        "class": Attribute(type="enum", values=("public", "secret"), on=("table", "user"), origins=("state",)),
        "rank": Attribute(type="text", on=("table",), origins=("state",)),
    },
)


@st.composite
def states(draw: st.DrawFn) -> dict[str, list[dict[str, str]]]:
    """Tables whose cells are good or bad in every way, some rows twice."""
    tables = {}
    for table in TABLES:
        cells = {name: st.sampled_from(CELLS[name]) for name in TABLE_COLUMNS[table].all}
        if table == "attributes":
            cells |= {"user": st.sampled_from(["", "", *USERS[:3]]), "entity": st.sampled_from(["", *ENTITIES[:4]])}
        tables[table] = draw(st.lists(st.fixed_dictionaries(cells), max_size=12))
    return tables


@contextmanager
def large(rows: int) -> Iterator[None]:
    """States count as large from that many rows on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "LARGE", rows)
        yield


def both_ways(program: Program, read: Any) -> tuple[Checked, Checked]:
    """What comes of the rows that `read` gives, looked at one by one and by columns."""
    found = []
    for rows in (10**9, 0):
        with large(rows):
            found.append(validate_with_places(program, read()))
    return found[0], found[1]


def agree(rows_side: Checked, columns_side: Checked) -> None:
    """The same states, places and findings: code, words, advice and cells, in the same order."""
    assert [(f, list(f.row.items())) for f in rows_side[2]] == [(f, list(f.row.items())) for f in columns_side[2]]
    for table in TABLES:
        rows = getattr(rows_side[0], table)
        assert tuple(rows) == tuple(getattr(columns_side[0], table))
        assert [rows_side[1].of(table, n) for n in range(len(rows))] == [
            columns_side[1].of(table, n) for n in range(len(rows))
        ]
        assert list(rows_side[0].windows.get(table, ())) == list(columns_side[0].windows.get(table, ()))
    assert rows_side[0].at(MOMENT) == columns_side[0].at(MOMENT)


def programs(program: Program) -> list[Program]:
    """Policies that take fewer rows for good."""
    plain = replace(program.semantics, deny="none", owner=None, groups=("request",))
    chains = replace(program.semantics, hierarchy=("groups", "roles"), assignees=("user", "group", "role"))
    return [
        replace(program, attributes=ATTRIBUTES),
        replace(program, semantics=plain),
        replace(program, semantics=chains),
    ]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables=states())
def test_columns_and_rows_agree_on_good_and_bad_states(
    program: Program, tables: dict[str, list[dict[str, str]]]
) -> None:
    for policy in programs(program):
        rows, columns = both_ways(policy, lambda: from_tables(tables, "state.json"))
        agree(rows, columns)
        assert index_bytes(policy, rows[0].at(MOMENT)) == index_bytes(policy, columns[0].at(MOMENT))


@pytest.mark.parametrize("edges", [{"from": "2300-01-01T00:00:00Z"}, {"until": "1600-01-01T00:00:00Z"}])
def test_a_row_that_begins_after_every_moment_or_ends_before_is_wrong_either_way(
    program: Program, edges: dict[str, str]
) -> None:
    row = {"user": "ann", "group": "hr", **edges}
    rows, columns = both_ways(program, lambda: from_tables({"memberships": [row]}, "state.json"))
    agree(rows, columns)
    assert [finding.code for finding in columns[2]] == ["S170"]
    assert "every moment that counts" in columns[2][0].message


def write_csv(folder: Path, tables: dict[str, list[dict[str, str]]], *, end: str = "\n") -> None:
    """The tables as files, columns the other way round."""
    for table, rows in tables.items():
        with (folder / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
            columns = TABLE_COLUMNS[table].all[::-1]
            writer = csv.writer(file, lineterminator=end)
            writer.writerow(columns)
            writer.writerows([row.get(name, "") for name in columns] for row in rows)


def write_parquet(folder: Path, tables: dict[str, list[dict[str, str]]], *, null: bool) -> None:
    """The tables as files; some cells null."""
    for table, rows in tables.items():
        columns = {
            name: pyarrow.array(
                [None if null and n % 5 == 0 else row.get(name) for n, row in enumerate(rows)], pyarrow.string()
            )
            for name in TABLE_COLUMNS[table].all
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{table}.parquet", row_group_size=5)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables=states())
def test_files_are_read_alike(
    program: Program, tables: dict[str, list[dict[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number in range(4):
        folder = tmp_path_factory.mktemp("state")
        if number < 2:
            write_csv(folder, tables, end="\r\n" if number else "\n")
        else:
            write_parquet(folder, tables, null=number == 3)
        agree(*both_ways(program, partial(load_raw_state, folder)))


ODD = {
    "quotes": 'user,group\n"ann",hr\nben,"h,r"\n"a\nb",it\ncem,it\n',
    "blank lines": "user,group\n\nann,hr\n\n\nben,hr\n",
    "no last line break": "user,group\nann,hr\nben,hr",
    "too many cells": "user,group\nann,hr,x\nben,hr\n",
    "too few cells": "user,group\nann\nben,hr\n",
    "an empty cell": "user,group\nann,\n,hr\nben,hr\n",
    "a lone carriage return": "user,group\nann,hr\rben,hr\ncem,hr\n",
    "both line breaks": "user,group\r\nann,hr\nben,hr\r\n",
    "an unclosed quote": 'user,group\nann,hr\n"ben,hr\n',
    "no rows": "user,group\n",
    "no column": "\nuser,group\nann,hr\n",
    "a wrong column": "user,gruop\nann,hr\n",
    "a column twice": "user,user,group\nann,ann,hr\n",
    "semicolons": "user;group\nann;hr\n",
    "a very long cell": f"user,group\n{'x' * 140_000},hr\nann,hr\n",
    "a zero": "user,group\nann\0,hr\nben,hr\n",
    "a byte order mark": "\ufeffuser,group\nann,hr\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_csv_is_read_alike(program: Program, tmp_path: Path, text: str) -> None:
    (tmp_path / "memberships.csv").write_bytes(text.encode())
    agree(*both_ways(program, lambda: load_raw_state(tmp_path)))


PARQUET = {
    "numbers": [1, 2, -3],
    "truth values": [True, False, None],
    "lists": [["a"], None, []],
    "bytes": [b"a", b"\xff", None],
    "empty texts": ["", "a", None],
    "nothing": [None, None, None],
}


@pytest.mark.parametrize("values", PARQUET.values(), ids=PARQUET)
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_odd_parquet_is_read_alike(program: Program, tmp_path: Path, values: list[Any], folder: bool) -> None:
    users = pyarrow.array(values)
    scopes = pyarrow.array(["lake:l", "", None])
    roles = pyarrow.array(["own", "own", "keeper"]).dictionary_encode()
    table = pyarrow.table({"role": roles, "principal": users, "scope": scopes})
    file = tmp_path / "assignments.parquet"
    if folder:
        file.mkdir()
        file = file / "part-0.parquet"
    pyarrow.parquet.write_table(table, file)
    agree(*both_ways(program, lambda: load_raw_state(tmp_path)))


MEMBERSHIPS = "user,group\nann,hr\nbén,it\n"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("memberships.csv", MEMBERSHIPS.encode("latin-1"), "S001"),
        ("memberships.csv", MEMBERSHIPS.encode("utf-16"), "S001"),
        ("memberships.csv", MEMBERSHIPS.encode()[:-6] + b"\xc3", "S001"),
        ("memberships.csv", b"user\nann\n", "S102"),
        ("memberships.csv", b"user,group,group\nann,hr,it\n", "S106"),
        ("memberships.json", b'[{"user": "ann", "group": "hr"}, {"us', "S002"),
    ],
)
def test_a_broken_file_gives_no_row_either_way(
    program: Program, tmp_path: Path, name: str, content: bytes, code: str
) -> None:
    (tmp_path / name).write_bytes(content)
    rows, columns = both_ways(program, lambda: load_raw_state(tmp_path))
    agree(rows, columns)
    assert not columns[0].memberships
    assert {finding.code for finding in columns[2]} == {code}


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_half_written_parquet_file_gives_no_row_either_way(
    program: Program, tmp_path: Path, part: float, folder: bool
) -> None:
    file = tmp_path / "memberships.parquet"
    texts = {"user": [f"u{n}" for n in range(500)], "group": ["hr"] * 500}
    if folder:
        file.mkdir()
        pyarrow.parquet.write_table(pyarrow.table(texts), file / "part-0.parquet")
        file = file / "part-1.parquet"
    pyarrow.parquet.write_table(pyarrow.table(texts), file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * part)])
    rows, columns = both_ways(program, lambda: load_raw_state(tmp_path))
    agree(rows, columns)
    assert not columns[0].memberships
    assert [finding.code for finding in columns[2]] == ["S001"]


def test_more_rows_than_are_read(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "MOST_ROWS", 2)
    monkeypatch.setattr(raw, "MOST_COLUMN_ROWS", 2)
    (tmp_path / "memberships.csv").write_text("user,group\nann,hr\n,hr\nben,hr\ncem,hr\ndan,hr\n", encoding="utf-8")
    agree(*both_ways(program, lambda: load_raw_state(tmp_path)))


def rich() -> dict[str, list[dict[str, str]]]:
    """A good state with something in every table."""
    return {
        "members": [{"user": u, "of": "lake:l"} for u in ("ann", "ben")],
        "memberships": [{"user": "ann", "group": "hr"}, {"user": "ben", "group": "it"}],
        "assignments": [
            {"principal": "group:hr", "role": "own"},
            {"principal": "user:ben", "role": "keeper", "scope": "lake:l"},
        ],
        "grants": [
            {"grantee": "role:own", "effect": e, "privilege": p, "entity": "table:l/s/t"}
            for e, p in (("allow", "ALL"), ("deny", "MODIFY"))
        ],
        "owners": [{"entity": "schema:l/s", "owner": "user:ann"}],
        "service_admins": [{"user": "root"}],
    }


def test_an_index_is_the_same_bytes(program: Program) -> None:
    (rows, _, _), (columns, _, _) = both_ways(program, lambda: from_tables(rich(), "s"))
    assert index_bytes(program, rows) == index_bytes(program, columns)
    revision, content = index_bytes(program, columns)
    assert revision == "d4120c8c06681feb"
    assert sha256(content).hexdigest() == "4834c14b7122c9b028abee9ce958c8b9cba00819933710d816a3daf6519736f2"


def test_questions_have_the_same_answers(program: Program) -> None:
    (rows, _, _), (columns, _, _) = both_ways(program, lambda: from_tables(rich(), "s"))
    assert isinstance(columns.grants, ColumnRows)
    changes = (AddToGroup(group="it"), Assign(role="own"))
    for row_state, column_state in ((rows, columns), (apply(rows, "cem", changes), apply(columns, "cem", changes))):
        row_holdings, column_holdings = Holdings(program, row_state), Holdings(program, column_state)
        for user in ("ann", "ben", "cem", "root", "nobody"):
            assert row_holdings.of_user(user) == column_holdings.of_user(user)
            assert row_holdings.is_member(user, "lake:l") == column_holdings.is_member(user, "lake:l")
        for principal in ("group:hr", "role:own", "role:keeper"):
            assert row_holdings.of_principal(principal) == column_holdings.of_principal(principal)
        for privilege in program.privileges:
            assert row_holdings.grants_on(privilege, "table:l/s/t") == column_holdings.grants_on(
                privilege, "table:l/s/t"
            )
        assert row_holdings.owners("schema:l/s") == column_holdings.owners("schema:l/s")


@pytest.mark.parametrize("count", [1, 3, 40])
def test_columns_say_which_rows_hold_a_text(count: int) -> None:
    from privtab.state.coded import CodedColumn
    from privtab.state.nodes import ExtendedColumn, ListColumn

    texts = [None if n % 7 == 0 else f"t{n % 50}" for n in range(300)]
    coded, plain = CodedColumn.of_texts(texts), ListColumn(texts)
    longer = ExtendedColumn(CodedColumn.of_texts(texts[:200]), ListColumn(texts[200:]))
    for column in (coded, longer):
        assert list(column) == texts
        assert sorted(column.names) == sorted(plain.names)
        for text in [f"t{n}" for n in range(count)]:
            assert column.where([text]) == plain.where([text])
        several = [f"t{n}" for n in range(count)] + ["other"]
        assert column.where(several) == plain.where(several)
        assert column.take([0, 1, 250]) == plain.take([0, 1, 250])


def test_reading_a_large_state_does_not_load_pandas(tmp_path: Path) -> None:
    write_csv(tmp_path, rich() | {"assignments": []})
    (tmp_path / "assignments.csv").unlink()
    write_parquet(tmp_path, {"assignments": [{"principal": "user:ben", "role": "own", "scope": "lake:l"}]}, null=False)
    code = f"""
import sys
from privtab.pipeline import load_program
from privtab.state import raw
raw.LARGE = 0
from privtab.state.load import load_raw_state, validate
validate(load_program("gravitino/1.1.0"), load_raw_state({str(tmp_path)!r}))
assert "pyarrow" in sys.modules
print(sorted({{"pandas", "pyarrow.dataset"}} & set(sys.modules)))
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"


def test_a_small_state_is_read_without_numpy(tmp_path: Path) -> None:
    write_csv(tmp_path, {"memberships": [{"user": "ann", "group": "hr"}]})
    code = f"""
import sys
from privtab.pipeline import load_program
from privtab.state.load import load_raw_state, validate
validate(load_program("gravitino/1.1.0"), load_raw_state({str(tmp_path)!r}))
print(sorted({{"numpy", "pyarrow"}} & set(sys.modules)))
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"
