"""What stands in the folder of a state: read, of no consequence, accepted by name, or an error that stops."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from privtab.base.errors import UsageError
from privtab.ir.nodes import Program
from privtab.state import raw as rows
from privtab.state.load import load_raw_state, validate
from privtab.state.raw import RawState

Read = Callable[..., RawState]
CSV = "user,group\nann,hr\n"
LINES = '{"user": "ann", "group": "hr"}\n\n{"user": "bob", "group": "hr"}\n'


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("grant.csv", "did you mean `grants.csv`?"),
        ("Memberships.csv", "did you mean `memberships.csv`?"),
        ("memberships (1).csv", "did you mean `memberships.csv`?"),
        ("Service-Admins.json", "did you mean `service_admins.json`?"),
        ("grants.tsv", "a table's file ends in .csv, .json, .jsonl, .ndjson, .parquet, .yaml, .yml"),
        ("grants.csv.bz2", "a table's file ends in .csv, .json, .jsonl, .ndjson, .parquet, .yaml, .yml"),
        ("a&b.txt", "move it away; or add `?accept=a%26b.txt` to the state's location, to do without it"),
    ],
)
def test_a_file_that_no_table_reads_stops(read: Read, program: Program, name: str, advice: str) -> None:
    (finding,) = read({name: "anything", "owners.yaml": "[]"}).findings
    assert (finding.code, finding.severity, finding.help) == ("S006", "error", advice)
    assert finding.stops(program)


@pytest.mark.parametrize(
    "accept",
    ["notes a+b.txt?accept=notes%20a%2Bb.txt", "grants.csv.bz2/?accept=x&accept=grants.csv.bz2", "more?accept=more"],
)
def test_what_is_named_is_left_out(tmp_path: Path, accept: str) -> None:
    name, _, names = accept.partition("?")
    (tmp_path / "memberships.csv").write_text(CSV)
    (tmp_path / name.rstrip("/")).mkdir() if name == "more" else (tmp_path / name.rstrip("/")).write_text("x")
    assert [f.code for f in load_raw_state(tmp_path).findings] == ["S006"]
    assert not load_raw_state(f"{tmp_path}/?{names}").findings
    assert not load_raw_state(Path(f"{tmp_path}?{names}")).findings


@pytest.mark.parametrize("large", [20_000, 1])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("memberships.csv", "user,ticket,group\nann,7,hr\nbob,8,hr\n"),
        ("memberships.csv", 'user,ticket,group\n"ann",7,hr\n'),
        ("memberships.jsonl", '{"user": "ann", "group": "hr", "ticket": {"id": 7}}\n'),
        ("memberships.yaml", "- {user: ann, group: hr, ticket: [7]}\n"),
    ],
)
def test_a_column_that_is_named_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program, name: str, content: str, large: int
) -> None:
    monkeypatch.setattr(rows, "LARGE", large)
    (tmp_path / name).write_text(content)
    assert {(f.code, f.stops(program)) for f in load_raw_state(tmp_path).findings} == {("S101", True)}
    state, findings = validate(program, load_raw_state(f"{tmp_path}?accept=memberships.ticket"))
    assert not findings
    assert ("ann", "hr") in state.memberships


def test_a_table_that_is_named_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "state.yaml").write_text("grants: []\nnotes: [{user: ann}]\n")
    assert [f.code for f in load_raw_state(tmp_path / "state.yaml").findings] == ["S003"]
    assert load_raw_state(f"{tmp_path}/state.yaml?accept=notes") == RawState()


def test_a_folder_of_parts_is_one_table(tmp_path: Path, program: Program) -> None:
    (tmp_path / "memberships").mkdir()
    for number, text in enumerate((CSV, "group,user\nhr,bob\nhr,\n", CSV)):
        (tmp_path / f"memberships/part-{number}.csv").write_text(text)
    for name in ("_SUCCESS", ".part-0.csv.crc"):
        (tmp_path / "memberships" / name).write_text("")
    state, findings = validate(program, load_raw_state(tmp_path))
    assert set(state.memberships) == {("ann", "hr"), ("bob", "hr")}
    assert [(Path(f.place.path).name, f.place.line, f.place.row, f.code, f.message[:28]) for f in findings] == [
        ("part-1.csv", 3, 3, "S105", "`user` is empty"),
        ("part-2.csv", 2, 4, "S160", "the row says the same as row"),
    ]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a.csv", "until=2020-01-01/b.csv"], "S006"),
        (["a.csv", "_b=c/b.csv"], "S006"),
        (["a.csv", "b.txt"], "S006"),
        (["a.csv", "b.csv.bz2"], "S006"),
        (["a.csv", "b.json"], "S005"),
        (["_SUCCESS"], "S005"),
    ],
)
def test_what_is_no_part_stops_and_cannot_be_accepted(
    tmp_path: Path, program: Program, names: list[str], code: str
) -> None:
    for name in names:
        (tmp_path / "memberships" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "memberships" / name).write_text(CSV)
    found = load_raw_state(f"{tmp_path}?accept=b.txt&accept=memberships/b.txt").findings
    assert code in [f.code for f in found]
    assert all(f.stops(program) for f in found)


def test_a_table_in_two_forms_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "memberships.csv").write_text(CSV)
    (tmp_path / "memberships").mkdir()
    (tmp_path / "memberships/part-0.csv").write_text(CSV)
    raw = load_raw_state(tmp_path)
    assert ([f.code for f in raw.findings], raw.rows) == (["S005"], {})
    assert "`memberships` and `memberships.csv`" in raw.findings[0].message


def test_rows_on_lines_have_lines(read: Read) -> None:
    raw = read({"memberships.jsonl": LINES})
    assert [(row.number, row.line, row.cells["user"]) for row in raw.rows["memberships"]] == [
        (1, 1, "ann"),
        (2, 3, "bob"),
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"user": "ann", "group": "hr"} {"user": "eve", "group": "hr"}', "S002"),
        ('{"user": "ann", "group": "hr", "group": "it"}', "S106"),
        ('["ann", "hr"]', "S004"),
        ('{"user": "ann", "group": "h', "S002"),
        ("# ann", "S002"),
    ],
)
def test_a_wrong_line_stops_with_its_number(read: Read, program: Program, line: str, code: str) -> None:
    (finding,) = read({"memberships.jsonl": f"{LINES}{line}\n"}).findings
    assert (finding.code, finding.place.line) == (code, 4)
    assert finding.stops(program)


@pytest.mark.parametrize("name", ["state.yaml.gz", "state.json.gz"])
def test_a_packed_file_of_all_tables(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b'{"memberships": [{"user": "ann", "group": "hr"}]}'))
    assert len(load_raw_state(tmp_path / name).rows["memberships"]) == 1


def test_a_packed_file_is_limited_after_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGEST", 1 << 20)
    (tmp_path / "grants.csv.gz").write_bytes(gzip.compress(b"x" * (2 << 20)))
    assert [f.code for f in load_raw_state(tmp_path).findings] == ["S007"]


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(CSV.encode(), mtime=0)[:-6], gzip.compress(CSV.encode(), mtime=0) + b"tail"]
)
def test_a_broken_packed_file_stops(read: Read, program: Program, content: bytes) -> None:
    (finding,) = read({"memberships.csv.gz": content}).findings
    assert finding.code == "S001"
    assert finding.stops(program)


def test_one_packed_table_alone_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "grants.csv.gz").write_bytes(b"")
    with pytest.raises(UsageError, match="one table"):
        load_raw_state(tmp_path / "grants.csv.gz")
