"""Tables with versions: real ones of Delta and Iceberg through the command, and what is not read as bare files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pyspark
import pytest
import spark_sessions
from pyspark.sql import SparkSession

from privtab.base import UsageError
from privtab.ir import Program
from privtab.state import load_raw_state
from privtab_spark.state import read_state

HERE = Path(__file__).parent
PACKAGES = {
    "4.0": ("io.delta:delta-spark_2.13:4.0.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"),
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.1.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"),
}
"""By version of Spark. Those for 4.2 and 4.1 do not run on 4.3: its classes are others."""
GRANTS = """\
tables:
  grants:
    - {format: delta, path: grants, columns: &now {grantee: "concat('role:', role_name)", effect: {value: allow}, privilege: upper(privilege),
       entity: {type: table, names: [lake, {value: s}, name]}}}
    - {format: delta, path: grants, options: {versionAsOf: 0}, where: role_name = 'old', columns: {<<: *now, grantee: {value: "user:first"}}}
    - {table: "delta.`FOLDER/grants`", options: {versionAsOf: 0}, columns: {<<: *now, grantee: {value: "user:named"}}}
    - {table: lake.iam.grants, columns: {<<: *now, grantee: {value: "user:berg"}}}
    - {format: iceberg, table: lake.iam.grants, options: {snapshot-id: SNAPSHOT}, columns: {<<: *now, grantee: {value: "user:then"}}}
  owners: {format: iceberg, path: warehouse/iam/owners}
  memberships: {path: exports/memberships}
"""


@pytest.mark.long
def test_delta_and_iceberg(policy_file: Path, tmp_path: Path) -> None:
    packages = PACKAGES.get(pyspark.__version__[:3])
    if packages is None:
        pytest.skip(f"no Delta and Iceberg for Spark {pyspark.__version__}: run this with PySpark 4.0 or 4.1")
    output = ran(str(HERE / "lakes.py"), str(tmp_path), *packages)
    text = GRANTS.replace("FOLDER", str(tmp_path)).replace("SNAPSHOT", output.split()[-1])
    (tmp_path / "sources.yaml").write_text(text, encoding="utf-8")
    catalog = {
        "lake": "org.apache.iceberg.spark.SparkCatalog", "lake.type": "hadoop", "lake.warehouse": f"{tmp_path}/warehouse",
    }  # fmt: skip
    options = [f"--conf=spark.jars.packages={','.join(packages)}"]
    options += [f"--conf=spark.sql.catalog.{name}={value}" for name, value in catalog.items()]
    command = ["-m", "privtab", "state"]
    where = [str(tmp_path / "sources.yaml"), "-p", str(policy_file), *options, "--format", "json"]
    document = json.loads(ran(*command, "read", *where, "-o", str(tmp_path / "checked")))
    assert document["findings"] == []
    data = tmp_path / "checked" / json.loads((tmp_path / "checked" / "_MANIFEST.json").read_text())["data"]
    assert {(row["grantee"], row["path"]) for row in table(data / "grants")} == {
        ("role:clerk", "l/s/a%2Fb"), ("user:first", "l/s/t"), ("user:named", "l/s/a%2Fb"), ("user:named", "l/s/t"),
        ("user:berg", "l/s/a%2Fb"), ("user:then", "l/s/a%2Fb"), ("user:then", "l/s/t"),
    }  # fmt: skip
    assert [row["owner"] for row in table(data / "owners")] == ["user:ann"]
    assert [(row["user"], row["group"]) for row in table(data / "memberships")] == [("ann", "7")]
    built = json.loads(ran(*command, "build", *where, "-o", str(tmp_path / "built")))
    assert (built["shards"]["lake:l"]["allow"], built["shards"]["lake:l"]["owners"]) == (7, 1)


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(folder).to_pylist()
    return rows


def ran(*arguments: str) -> str:
    """The standard output of a Python process; skips where its jars cannot be had."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600,
        env=spark_sessions.environment(),
    )  # fmt: skip
    if "UNRESOLVED DEPENDENCIES" in done.stdout + done.stderr:
        pytest.skip("the jars cannot be fetched: no Maven Central")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def pretended(folder: Path, log: str = "_delta_log") -> Path:
    """A folder with a Parquet file, and beside it what says that it is a table of another format."""
    (folder / log).mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").parent.mkdir(exist_ok=True)
    (folder / "metadata" / "v1.metadata.json").write_text("{}")
    rows = {"user": pa.array(["ann"]), "group": pa.array(["gone"])}
    pyarrow.parquet.write_table(pa.table(rows), folder / "part-0.parquet")
    return folder


@pytest.mark.slow
def test_files_of_a_table_with_versions_are_not_its_rows(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    delta = pretended(tmp_path / "delta" / "memberships")
    iceberg = pretended(tmp_path / "iceberg" / "memberships.parquet", "data")
    for source, why in (
        ({"format": "parquet", "path": str(delta)}, "is a table of delta, whose files hold deleted rows, too"),
        ({"format": "parquet", "path": delta.as_uri()}, "is a table of delta, whose files hold deleted rows, too"),
        ({"path": str(iceberg)}, "bring the jars of iceberg for this Spark: `spark.jars.packages`"),
    ):
        with pytest.raises(UsageError) as raised:
            read_state(spark, {"memberships": source}, shop)
        assert why in str(raised.value)
        assert "calling o" not in str(raised.value)
    with pytest.raises(UsageError, match="bring the jars of delta"):
        read_state(spark, delta.parent, shop)
    found = load_raw_state(iceberg.parent)
    assert "is a table of iceberg, whose files hold deleted rows, too" in str(found)
