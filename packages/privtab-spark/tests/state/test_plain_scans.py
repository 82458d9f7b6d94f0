"""Files that are read on the driver give the rows that Spark reads, and what is not known to be a plain scan is left to Spark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from privtab.base import StateInvalid
from privtab.ir import Program
from privtab_spark.failures import spark_errors
from privtab_spark.state import Read, plain_scans, read_state

ROWS = [
    ("user:ann", "allow", "SELECT", "table:l/s/t"),
    ("user:ann", "allow", "SELECT", "table:l/s/t"),
    ("group:hr", "deny", "SELECT", "lake:l"),
    ("role:clerk", "allow", "MANAGE", "lake:ünï"),
]
TEXT = pa.string()
NAMES = ("grantee", "effect", "privilege", "entity")


def table(rows: Sequence[Any] = ROWS, kind: pa.DataType = TEXT, names: tuple[str, ...] = NAMES) -> pa.Table:
    return pa.table(
        {
            name: pa.array(cells, pa.string()).cast(kind)
            for name, cells in zip(names, zip(*rows, strict=True), strict=True)
        }
    )


def written(folder: Path, *tables: pa.Table) -> str:
    """A folder with a file for each table."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(tables):
        parquet.write_table(rows, folder / f"{number}.parquet")
    return str(folder)


def scanned(
    spark: SparkSession, shop: Program, frame: DataFrame, *, plain: bool, connected: bool, of: str = "grants"
) -> Read:
    """Check that the driver reads the rows that Spark reads, or leaves them to Spark."""
    read = read_state(spark, {of: frame}, shop)
    by_driver, by_spark = read._scanned(of), read.raw(of).toArrow()
    assert (by_driver is not None) == (plain and not connected)
    if by_driver is not None:
        assert by_driver.column_names == by_spark.column_names
        assert counted(by_driver) == counted(by_spark)
    assert read.raw_counts == dict.fromkeys(read.raw_counts, 0) | {of: len(by_spark)}
    return read


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(
        zip(*(column.cast(pa.string()).cast(pa.binary()).to_pylist() for column in rows.columns), strict=True)
    )


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    ids=["string", "large", "dictionary"],
)
def test_files_of_texts(kind: pa.DataType, spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    files = written(tmp_path / "grants", table(kind=kind), table(ROWS[2:], kind))
    scanned(spark, shop, spark.read.parquet(files), plain=True, connected=connected)


def test_files_that_spark_wrote_beside_hidden_ones(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    where = str(tmp_path / "grants of ünï")
    spark.createDataFrame(table()).repartition(3).write.parquet(where)
    for hidden in ("_hidden.parquet", ".hidden.parquet", "_metadata", "_temporary/0.parquet"):
        (tmp_path / "grants of ünï" / hidden).parent.mkdir(exist_ok=True)
        parquet.write_table(table(), tmp_path / "grants of ünï" / hidden)
    scanned(spark, shop, spark.read.parquet(where), plain=True, connected=connected)


def test_columns_in_another_order_renamed_missing_or_null(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    rows = [("user:ann", "clerk", None), (None, "keeper", "x"), ("", "clerk", None)]
    where = written(tmp_path / "assignments", table(rows, names=("who", "role", "more")))
    frame = spark.read.parquet(where).select("role", F.col("who").alias("principal"))
    scanned(spark, shop, frame, plain=True, connected=connected, of="assignments")


def test_bytes_that_are_no_text(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    odd = pa.array([b"user:\xff", b"user:ann"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, odd.buffers())
    where = written(tmp_path / "grants", table(ROWS[:2]).set_column(0, "grantee", text))
    read = scanned(spark, shop, spark.read.parquet(where), plain=True, connected=connected)
    assert len(read.local().grants) == 1


def test_views(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    spark.read.parquet(written(tmp_path / "grants", table())).createOrReplaceTempView("all_grants")
    whole, part = spark.sql("SELECT * FROM all_grants"), spark.sql("SELECT * FROM all_grants WHERE effect <> 'deny'")
    scanned(spark, shop, whole, plain=True, connected=connected)
    read = scanned(spark, shop, part, plain=False, connected=connected)
    assert read.raw_counts["grants"] == 3


OTHERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a filter": lambda frame: frame.where("grantee > 'h'"),
    "the first rows": lambda frame: frame.limit(2),
    "distinct rows": lambda frame: frame.distinct(),
    "some rows": lambda frame: frame.sample(fraction=0.5, seed=1),
    "a union": lambda frame: frame.union(frame),
    "a join": lambda frame: frame.join(frame.select("grantee").distinct(), "grantee"),
    "an expression": lambda frame: frame.withColumn("grantee", F.lower("grantee")),
    "a constant": lambda frame: frame.withColumn("effect", F.lit("allow")),
    "a name of a file": lambda frame: frame.withColumn("grantee", F.concat(F.lit("user:"), "_metadata.file_name")),
    "exploded rows": lambda frame: frame.withColumn("effect", F.explode(F.array("effect", F.lit("deny")))),
}


@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS)
def test_what_is_more_than_a_scan_is_left_to_spark(
    made: Callable[[DataFrame], DataFrame], spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    frame = spark.read.parquet(written(tmp_path / "grants", table()))
    scanned(spark, shop, made(frame), plain=False, connected=connected)


def test_a_cached_frame_is_what_it_was(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    frame = spark.read.parquet(written(tmp_path / "grants", table())).cache()
    frame.count()
    read = scanned(spark, shop, frame, plain=False, connected=connected)
    assert read.raw_counts["grants"] == len(ROWS)
    frame.unpersist()


@pytest.mark.parametrize("format_", ["csv", "json", "orc"])
def test_other_formats_are_left_to_spark(
    format_: str, spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    where = str(tmp_path / "grants")
    spark.createDataFrame(table()).write.format(format_).option("header", "true").save(where)
    frame = spark.read.format(format_).option("header", "true").load(where)
    scanned(spark, shop, frame, plain=False, connected=connected)


def test_partitions_are_left_to_spark(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    where = str(tmp_path / "grants")
    spark.createDataFrame(table()).write.partitionBy("effect").parquet(where)
    scanned(spark, shop, spark.read.parquet(where).select(*NAMES), plain=False, connected=connected)


@pytest.mark.parametrize("merged", ["true", "false"])
def test_files_with_differing_columns(
    merged: str, spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    window = table([(*row, "2026-01-01T00:00Z") for row in ROWS], names=(*NAMES, "until"))
    where = written(tmp_path / "grants", window, table())
    frame = spark.read.option("mergeSchema", merged).parquet(where)
    has = "until" in frame.columns
    scanned(spark, shop, frame, plain=not has, connected=connected)
    more = written(tmp_path / "more", table(), table([(*row, "x") for row in ROWS], names=(*NAMES, "more")))
    scanned(spark, shop, spark.read.parquet(more).select(*NAMES), plain=True, connected=connected)


def test_names_that_differ_in_case(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    columns = ", ".join(f"{name} string" for name in NAMES)
    where = written(tmp_path / "grants", table(), table(names=("Grantee", *NAMES[1:])))
    scanned(spark, shop, spark.read.schema(columns).parquet(where), plain=False, connected=connected)


@pytest.mark.parametrize("kind", ["char(40)", "varchar(40)"])
def test_padded_and_bounded_columns(
    kind: str, spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    columns = ", ".join(f"{name} {kind}" for name in NAMES)
    where = written(tmp_path / "grants", table())
    spark.sql(f"CREATE TABLE bounded ({columns}) USING parquet LOCATION '{where}'")
    try:
        scanned(spark, shop, spark.table("bounded"), plain=False, connected=connected)
    finally:
        spark.sql("DROP TABLE bounded")


def test_numbers_are_left_to_spark(spark: SparkSession, shop: Program, tmp_path: Path, connected: bool) -> None:
    numbers = table().set_column(0, "grantee", pa.array(range(len(ROWS))))
    frame = spark.read.parquet(written(tmp_path / "grants", numbers))
    scanned(spark, shop, frame, plain=False, connected=connected)
    columns = ", ".join(f"{name} string" for name in NAMES)
    wrong = spark.read.schema(columns).parquet(str(tmp_path / "grants"))
    read = read_state(spark, {"grants": wrong}, shop)
    assert read._scanned("grants") is None
    with pytest.raises(spark_errors()):
        read.local()


def test_files_that_changed_since_they_were_listed(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    where = written(tmp_path / "grants", table())
    file = tmp_path / "grants" / "0.parquet"
    read = read_state(spark, {"grants": spark.read.parquet(where)}, shop)
    assert (read._scanned("grants") is None) == connected
    was = file.stat()
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns + 5_000_000))
    assert read._scanned("grants") is None
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (read._scanned("grants") is None) == connected
    file.write_bytes(file.read_bytes() + b"PAR1")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert read._scanned("grants") is None
    file.unlink()
    assert read._scanned("grants") is None
    with pytest.raises(spark_errors()):
        read.local()


def test_a_file_that_changes_while_it_is_read(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = written(tmp_path / "grants", table())
    read = read_state(spark, {"grants": spark.read.parquet(where)}, shop)
    assert (read._scanned("grants") is None) == connected

    def touched(descriptor: int) -> os.stat_result:
        found = os.fstat(descriptor)
        os.utime(descriptor)
        return found

    monkeypatch.setattr(plain_scans, "os", SimpleNamespace(fstat=touched))
    assert read._scanned("grants") is None


def test_a_file_without_the_checksum_beside_it(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool
) -> None:
    where = tmp_path / "grants"
    spark.createDataFrame(table()).coalesce(1).write.parquet(str(where))
    [sums] = where.glob(".part-*.crc")
    frame = spark.read.parquet(str(where))
    read = scanned(spark, shop, frame, plain=True, connected=connected)
    sums.write_bytes(sums.read_bytes()[:-1] + b"?")
    assert read._scanned("grants") is None
    with pytest.raises(spark_errors()):
        read.local()


def test_too_many_and_too_large_files_are_left_to_spark(
    spark: SparkSession, shop: Program, tmp_path: Path, connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.parquet(written(tmp_path / "grants", table(), table()))
    for name in ("MOST_FILES", "MOST_BYTES"):
        with monkeypatch.context() as patched:
            patched.setattr(plain_scans, name, 1)
            scanned(spark, shop, frame, plain=False, connected=connected)


def test_rows_of_files_are_checked_as_rows_of_spark(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    wrong = table([*ROWS, ("user:ann", "deny", "SELET", "lake:l")])
    frame = spark.read.parquet(written(tmp_path / "grants", wrong))
    found = []
    for rows in (frame, frame.limit(99)):
        with pytest.raises(StateInvalid) as raised:
            read_state(spark, {"grants": rows}, shop).local()
        found.append(str(raised.value))
    assert found[0] == found[1]
    assert "SELET" in found[0]
