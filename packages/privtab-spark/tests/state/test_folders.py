"""A folder of a state means the same to Spark as without it: the same rows, and the same errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from privtab.base import StateInvalid, UsageError
from privtab.ir import Program
from privtab.state import load_raw_state
from privtab_spark.state import read_state

pytestmark = pytest.mark.slow

ANN, BOB = {"user": "ann", "group": "hr"}, {"user": "bob", "group": "hr", "until": "2020-01-01T00:00:00Z"}
LINES = f"{json.dumps(ANN)}\n{json.dumps(BOB)}\n"
CSV = "user,group,until\nann,hr,\n"


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def spark_rows(spark: SparkSession, folder: Path | str, shop: Program) -> set[tuple[str, ...]]:
    return {tuple(row) for row in read_state(spark, folder, shop).good("memberships").select("user", "group").collect()}


@pytest.mark.parametrize(
    "files",
    [
        {"memberships.jsonl": LINES},
        {"memberships.json": json.dumps([ANN, BOB], indent=1)},
        {"memberships.json.gz": gzip.compress(json.dumps([ANN, BOB]).encode(), mtime=0)},
        {"memberships.csv.gz": gzip.compress(f"{CSV}bob,hr,2020-01-01T00:00:00Z\n".encode(), mtime=0)},
        {"memberships/part-0.csv": CSV, "memberships/part-1.csv": "user,group,until\nbob,hr,\n", "memberships/_SUCCESS": ""},
        {"memberships/part-0.json.gz": gzip.compress(LINES.encode(), mtime=0), "memberships/part-1.json": "", "memberships/.x.crc": "x"},
        {"memberships.ndjson/part-0.ndjson": LINES, "_more": "", ".hidden": "", "memberships.ndjson/_SUCCESS": ""},
    ],
    ids=" ".join,
)  # fmt: skip
def test_rows_are_the_same(spark: SparkSession, shop: Program, tmp_path: Path, files: dict[str, str | bytes]) -> None:
    write(tmp_path, files)
    raw = load_raw_state(tmp_path)
    assert not raw.findings
    local = {(row.cells["user"], row.cells["group"]) for row in raw.rows["memberships"]}
    assert spark_rows(spark, tmp_path, shop) == local == {("ann", "hr"), ("bob", "hr")}


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_what_spark_writes_is_read_without_it(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    frame = spark.createDataFrame([("ann", "hr"), ("bob", "hr")], "user string, group string").repartition(3)
    frame.write.option("header", "true").format(format_).save(str(tmp_path / "memberships"))
    raw = load_raw_state(tmp_path)
    assert not raw.findings
    assert {(row.cells["user"], row.cells["group"]) for row in raw.rows["memberships"]} == {
        ("ann", "hr"),
        ("bob", "hr"),
    }


@pytest.mark.parametrize(
    "files",
    [
        {"memberships.tsv": "user\tgroup\n"},
        {"Memberships.csv": CSV},
        {"memberships (1).csv": CSV, "notes.xlsx": b"PK"},
        {"owners/until=2020-01-01/part-0.csv": "entity,owner\n", "owners/part-0.csv": "entity,owner\n"},
        {"owners/part-0.csv": "entity,owner\n", "owners/part-1.jsonl": "{}\n"},
        {"owners/_SUCCESS": ""},
        {"owners/part-0.csv": "entity,owner\n", "owners.csv": "entity,owner\n"},
    ],
    ids=" ".join,
)  # fmt: skip
def test_errors_are_the_same(spark: SparkSession, shop: Program, tmp_path: Path, files: dict[str, str | bytes]) -> None:
    write(tmp_path, {"grants.csv": "grantee,effect,privilege,entity\n", **files})
    expected = load_raw_state(tmp_path).findings
    assert expected
    with pytest.raises(StateInvalid) as raised:
        read_state(spark, tmp_path, shop)
    found = {(f.code, f.place, f.message) for f in raised.value.findings}  # type: ignore[attr-defined]
    assert found == {(f.code, f.place, f.message) for f in expected}


@pytest.mark.parametrize(
    "files",
    [
        {"memberships.json": json.dumps([ANN]) + json.dumps([BOB])},
        {"memberships.json": LINES},
        {"memberships.jsonl": f"{json.dumps(ANN)} {json.dumps(BOB)}\n"},
        {"memberships.jsonl": '{"user": "ann", "group": "hr", "group": "it"}\n'},
        {"memberships.json": '[{"user": "ann", "group": "hr", "until": "2020-01-01T00:00:00Z", "until": null}]'},
        {"memberships.csv": ""},
        {"memberships.csv.gz": gzip.compress(CSV.encode(), mtime=0)[:-9]},
        {"memberships/part-0.csv": CSV, "memberships/part-1.csv": "group,user,until\nhr,ann,\n"},
    ],
    ids=lambda files: " ".join(map(str, files.items())),
)  # fmt: skip
def test_nothing_is_read_in_part(
    spark: SparkSession, shop: Program, tmp_path: Path, files: dict[str, str | bytes]
) -> None:
    """Spark reads the first of several values, one of two cells, and all headers as the first of them."""
    write(tmp_path, {"grants.csv": "grantee,effect,privilege,entity\n", **files})
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        spark_rows(spark, tmp_path, shop)
    assert not isinstance(raised.value, AssertionError)


def test_a_column_of_one_file_of_parquet_counts(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    for number, row in enumerate((ANN, BOB)):
        (tmp_path / "memberships").mkdir(exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / f"memberships/part-{number}.parquet")
    (finding,) = load_raw_state(tmp_path).findings
    assert "not all of its files have the column `until`" in finding.message
    until = {row["until"] for row in read_state(spark, tmp_path, shop).good("memberships").collect()}
    assert until == {None, BOB["until"]}


def test_what_is_named_is_left_out(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    write(tmp_path, {"memberships.csv": "user,group,ticket\nann,hr,7\n", "notes.txt": "x", "attributes.csv": "x"})
    with pytest.raises(StateInvalid, match=r"notes\.txt"):
        read_state(spark, tmp_path, shop)
    with pytest.raises(UsageError, match="ticket"):
        read_state(spark, f"{tmp_path}?accept=notes.txt&accept=attributes.csv", shop)
    accepting = f"{tmp_path}/?accept=notes.txt&accept=attributes.csv&accept=memberships.ticket"
    assert spark_rows(spark, accepting, shop) == {("ann", "hr")}
