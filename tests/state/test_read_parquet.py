from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from privtab.state.load import load_raw_state


def write(file: Path, columns: dict[str, Any]) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def test_text_whole_numbers_and_dictionaries_are_read(tmp_path: Path) -> None:
    groups = pyarrow.array(["hr", "it"]).dictionary_encode()
    write(tmp_path / "memberships.parquet", {"user": pyarrow.array([17, 18]), "group": groups})
    raw = load_raw_state(tmp_path)
    assert not raw.findings
    assert [dict(r.cells) for r in raw.rows["memberships"]] == [
        {"user": "17", "group": "hr"},
        {"user": "18", "group": "it"},
    ]
    assert [r.place.row for r in raw.rows["memberships"]] == [1, 2]


def test_nulls_and_other_values_are_findings_by_row(tmp_path: Path) -> None:
    write(tmp_path / "memberships.parquet", {"user": pyarrow.array(["a", None]), "group": pyarrow.array([b"x", b"y"])})
    raw = load_raw_state(tmp_path)
    assert [(f.code, f.place.row) for f in raw.findings] == [("S104", 1), ("S103", 2), ("S104", 2)]


def test_a_directory_as_spark_writes_it_is_one_table(tmp_path: Path) -> None:
    directory = tmp_path / "service_admins.parquet"
    directory.mkdir()
    (directory / "_SUCCESS").touch()
    write(directory / "part-00000.parquet", {"user": ["a"]})
    write(directory / "part-00001.parquet", {"user": ["b"]})
    assert [r.cells["user"] for r in load_raw_state(tmp_path).rows["service_admins"]] == ["a", "b"]


def test_wrong_columns_are_findings(tmp_path: Path) -> None:
    write(tmp_path / "members.parquet", {"user": ["a"], "off": ["lake:l"]})
    raw = load_raw_state(tmp_path)
    assert [(f.code, f.help) for f in raw.findings] == [("S101", "did you mean `of`?"), ("S102", None)]
    assert raw.rows == {}


def test_a_broken_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "grants.parquet").write_bytes(b"PAR1 and then nothing")
    assert [f.code for f in load_raw_state(tmp_path).findings] == ["S001"]


def test_without_pyarrow_the_finding_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "grants.parquet", {"grantee": ["user:a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (finding,) = load_raw_state(tmp_path).findings
    assert (finding.code, finding.place.table) == ("S001", "grants")
    assert finding.help is not None
    assert "extra `compiler`" in finding.help


def test_names_of_columns_that_are_not_utf_8_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "members.parquet"
    write(file, {"user": ["a"], "of": ["lake:l"]})
    file.write_bytes(file.read_bytes().replace(b"\x04user", b"\x04\xffser"))
    (finding,) = load_raw_state(tmp_path).findings
    assert (finding.code, "not a Parquet file" in finding.message) == ("S001", True)
