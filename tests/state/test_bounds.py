"""Files that are small and say very much: refused before they are read, in words."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privtab.ir.nodes import Program
from privtab.state import checker, read_json
from privtab.state import raw as rows
from privtab.state.load import load_raw_state
from privtab.state.load import validate as checked
from privtab.state.raw import RawState

Read = Callable[..., RawState]


def repeated(path: Path, count: int, text: str) -> int:
    """A Parquet file of one row, again and again; its size."""
    cells = {"grantee": "user:a", "effect": "deny", "privilege": "SELECT", "entity": f"table:l/s/{text}"}
    columns = {}
    for name, cell in cells.items():
        indices = pyarrow.array([0], pyarrow.int32()).take(pyarrow.nulls(count, pyarrow.int8()).fill_null(0))
        columns[name] = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([cell]))
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    return path.stat().st_size


@pytest.mark.slow
def test_parquet_with_more_rows_than_are_read(tmp_path: Path) -> None:
    assert repeated(tmp_path / "grants.parquet", 20_000_001, "t") < 1_000_000
    tracemalloc.start()
    raw = load_raw_state(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (finding,) = raw.findings
    assert (finding.code, finding.severity) == ("S007", "error")
    assert "`grants` has 20,000,001 rows, and 20,000,000 is the most" in finding.message
    assert not raw.rows
    assert most < 10_000_000


@pytest.mark.slow
def test_parquet_that_unpacks_to_very_much(tmp_path: Path) -> None:
    users = pyarrow.array(["x" * 1_000_000] * 1100)
    pyarrow.parquet.write_table(
        pyarrow.table({"user": users}), tmp_path / "service_admins.parquet", compression="zstd", use_dictionary=False
    )
    assert (tmp_path / "service_admins.parquet").stat().st_size < 1_000_000
    (finding,) = load_raw_state(tmp_path).findings
    assert (finding.code, finding.place.table) == ("S007", "service_admins")
    assert "unpacks to 1,100," in finding.message


@pytest.mark.slow
def test_a_repeated_text_is_stored_once(tmp_path: Path, program: Program) -> None:
    repeated(tmp_path / "grants.parquet", 20_000, "x" * 1_000_000)
    tracemalloc.start()
    state, findings = checked(program, load_raw_state(tmp_path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not state.grants
    assert {finding.code for finding in findings} == {"S117"}
    assert len(findings) == checker.MAX_FINDINGS_OF_KIND + 1
    assert "10,000 more rows of `grants`" in min(findings, key=lambda finding: finding.place.row).message
    assert most < 100_000_000


def test_texts_of_parquet_that_are_no_unicode(tmp_path: Path) -> None:
    broken = pyarrow.Array.from_buffers(pyarrow.string(), 2, pyarrow.array([b"a", b"\xff"], pyarrow.binary()).buffers())
    pyarrow.parquet.write_table(pyarrow.table({"user": broken}), tmp_path / "service_admins.parquet")
    raw = load_raw_state(tmp_path)
    assert [row.cells["user"] for row in raw.rows["service_admins"]] == ["a"]
    assert [(f.code, f.place.row) for f in raw.findings] == [("S104", 2)]


@pytest.mark.parametrize("name", ["state.yaml", "state.json", "grants.csv"])
def test_a_file_of_more_bytes_than_are_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    with (folder / name).open("wb") as file:
        file.truncate(rows.LARGEST + 1)
    (finding,) = load_raw_state(folder if name == "grants.csv" else folder / name).findings
    assert finding.code == "S007"
    assert "the file has 1,073,741,825 bytes" in finding.message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("service_admins.csv", "user\na\nb\nc\n"),
        ("service_admins.yaml", "[{user: a}, {user: b}, {user: c}]"),
        ("service_admins.json", '[{"user": "a"}, {"user": "b"}, {"user": "c"}]'),
    ],
)
def test_a_table_of_more_rows_than_are_read(
    read: Read, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 2)
    raw = read({name: content})
    (finding,) = raw.findings
    assert (finding.code, finding.place.row) == ("S007", 3)
    assert "`service_admins` has more than 2 rows" in finding.message


def test_json_of_more_values_than_are_read(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_json, "MOST_VALUES", 100)
    raw = read('{"grants": [' + "[]," * 100 + "[]]}", "state.json")
    assert [f.code for f in raw.findings] == ["S007"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "- [", '{"a":['])
@pytest.mark.parametrize("name", ["state.yaml", "state.json", "grants.yaml"])
def test_nesting_without_an_end_is_refused_at_once(read: Read, name: str, opening: str) -> None:
    content = opening * (200_000 // len(opening))
    begun = time.monotonic()
    raw = read({name: content} if name == "grants.yaml" else content, *([] if name == "grants.yaml" else [name]))
    assert time.monotonic() - begun < 30, "it must not take time that grows with the square of the depth"
    (finding,) = (f for f in raw.findings if f.code == "S002")
    assert finding.place.line == 1 or "nested too deeply" in finding.message
