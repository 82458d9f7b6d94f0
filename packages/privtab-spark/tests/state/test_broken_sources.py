"""Sources of a state that are broken: a clear error, and nothing is decided by what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import decision_rows
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from privtab.base import StateInvalid, UsageError
from privtab.ir import Program
from privtab_spark import decide
from privtab_spark.failures import spark_errors
from privtab_spark.state import build, read_state
from privtab_spark.state.schemas import MANIFEST

OWNERS = "entity,owner\nlake:l,user:zoë\nlake:k,user:ann\n"


def half_written_parquet(file: Path) -> None:
    file.mkdir()
    for part in ("part-0.parquet", "part-1.parquet"):
        pq.write_table(pa.table({"entity": ["lake:l"] * 9, "owner": ["user:ann"] * 9}), file / part)
    (file / part).write_bytes((file / part).read_bytes()[:60])


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "Parquet, half written": ("owners.parquet", half_written_parquet, "part-1.parquet"),
    "CSV, another encoding": ("owners.csv", lambda file: file.write_bytes(OWNERS.encode("latin-1")), "not UTF-8"),
    "CSV, UTF-16": ("owners.csv", lambda file: file.write_bytes(OWNERS.encode("utf-16")), "not UTF-8"),
    "CSV, a column missing": ("owners.csv", lambda file: file.write_text("entity\nlake:l\n"), "`owner` is missing"),
    "CSV, a column doubled": ("owners.csv", lambda file: file.write_text("entity,owner,owner\na,b,c\n"), "owner"),
    "CSV, a cell missing": ("owners.csv", lambda file: file.write_text("entity,owner\nlake:l\n"), "MALFORMED"),
    "JSON, another encoding": (
        "owners.json",
        lambda file: file.write_bytes('[{"entity": "lake:l", "owner": "user:zoë"}]'.encode("latin-1")),
        "not UTF-8",
    ),
    "JSON, half written": ("owners.json", lambda file: file.write_text('[{"entity": "lake:l", "own'), "owners"),
}
UNLIKE = {"Parquet, half written", "CSV, another encoding", "CSV, a cell missing", "JSON, half written"}
"""Those of which no two are found at the same place."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "message"),
    [pytest.param(*how, id=name, marks=() if name in UNLIKE else pytest.mark.long) for name, how in BROKEN.items()],
)
def test_a_broken_source_stops_whatever_reads_it(
    spark: SparkSession, shop: Program, tmp_path: Path, name: str, write: Callable[[Path], object], message: str
) -> None:
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows" / name)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")  # the session's own reads may be lenient
    try:
        with pytest.raises((UsageError, StateInvalid, *spark_errors()), match=message):
            read_state(spark, tmp_path / "rows", shop).write(tmp_path / "written")
        with pytest.raises((UsageError, StateInvalid, *spark_errors()), match=message):
            build(spark, str(tmp_path / "rows"), shop, tmp_path / "built")
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert not (tmp_path / "written" / MANIFEST).exists()
    assert not list(tmp_path.glob("built/**/*.tar.gz"))
    frame = decision_rows.frame(spark, [("ann", "l/s")], "who string, path string")
    with pytest.raises(StateInvalid, match=name):
        decide(frame, shop, tmp_path / "rows", subject="who", action="change", resource=("settings", "path"))


@pytest.mark.slow
def test_a_source_that_goes_away_is_not_taken_for_what_is_left(
    spark: SparkSession, shop: Program, tmp_path: Path
) -> None:
    folder = tmp_path / "rows" / "owners.parquet"
    folder.mkdir(parents=True)
    for part in ("part-0.parquet", "part-1.parquet"):
        pq.write_table(pa.table({"entity": [f"lake:{part}"], "owner": ["user:ann"]}), folder / part)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        read = read_state(spark, tmp_path / "rows", shop)
        (folder / "part-1.parquet").unlink()
        with pytest.raises(spark_errors(), match=r"part-1\.parquet"):
            read.write(tmp_path / "written")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert not (tmp_path / "written" / MANIFEST).exists()
