"""`privtab state build`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import signing_keys
from pyspark.sql import SparkSession

from privtab.base import Trust
from privtab.bundle import verify_bundle
from privtab.bundle.inspect import inspect
from privtab.command._app import run

POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table:}}}
privileges: {USE:, SELECT: {on: [schema, table]}}
semantics: {inheritance: down, owner: {}}
tables: {table: {load: USE (schema) and SELECT (table) or owner (table)}}
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(POLICY)
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "grants.csv").write_text(
        "grantee,effect,privilege,entity\nrole:a,allow,USE,catalog:hive\nrole:a,allow,USE,catalog:hive\n"
    )
    (tmp_path / "exports" / "assignments.csv").write_text("principal,role\nuser:ann,a\n")
    return tmp_path


@pytest.mark.slow
def test_a_state_is_built_and_changed(spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    key, public = signing_keys.pair().write(lake)
    command = ["state", "build", "exports", "-p", "lake.yaml", "-o", "built", "--signing-key", str(key)]
    assert run([*command, "--format", "json", "--signature", "sequence=3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rebuilt"] == ["catalog:hive"]
    assert document["signed"] == ["people", "catalog:hive"]
    people = lake / "built" / document["people"]["file"]
    assert verify_bundle(people, Trust.of(public)).sequence == 3
    made_of = inspect(people).provenance
    assert (sorted(made_of["sources"]), made_of["policy"]) == (["assignments.csv", "grants.csv"], "lake/1")
    assert document["findings"] == [{"table": "grants", "code": "S160", "severity": "warning", "rows": 1}]
    assert run(command) == 0
    assert "built/  unchanged: 1 shard" in capsys.readouterr().out
    with (lake / "exports" / "grants.csv").open("a") as file:
        file.write("role:a,allow,SELECT,schema:hive/s\n")
    assert run(command) == 0
    shown = capsys.readouterr()
    assert f"1 shard, 1 rebuilt, 0 removed, 2 signed with {document['people']['signature']['key']}" in shown.out
    assert "S160" in shown.err


@pytest.mark.slow
def test_wrong_rows_end_in_exit_code_1(spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    with (lake / "exports" / "grants.csv").open("a") as file:
        file.write("role:a,allow,SELET,schema:hive/s\n")
    assert run(["state", "build", "exports", "-p", "lake.yaml", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["good"]["grants"] == 1
    assert {"table": "grants", "code": "S130", "severity": "error", "rows": 1} in document["findings"]
    assert run(["state", "build", "exports", "-p", "lake.yaml", "-o", "built"]) == 1
    assert "unknown privilege `SELET`" in capsys.readouterr().err
    assert not (lake / "built" / "manifest.json").exists()


def test_bad_usage(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["state", "build", str(lake / "exports"), "-p", "lake.yaml", "--conf", "nothing"]) == 2
    assert "write KEY=VALUE" in capsys.readouterr().err
    assert (
        run(["state", "build", "exports", "-p", "lake.yaml", "-o", "built", "--conf", "spark.jars.packages=delta"]) == 2
    )
    assert "write GROUP:ARTIFACT:VERSION" in capsys.readouterr().err
    elsewhere = ["--conf", "spark.remote=sc://localhost:1", "--conf", "spark.jars.packages=a:b:1"]
    assert run(["state", "build", "exports", "-p", "lake.yaml", *elsewhere]) == 2
    assert "has jars of its own" in capsys.readouterr().err
    both = ["--conf", "spark.remote=sc://localhost:1", "--conf", "spark.master=local[1]"]
    assert run(["state", "build", "exports", "-p", "lake.yaml", *both]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "orc"], "`--rows` says how to write them"),
        (["--full"], "`--full` is about bundles"),
        (["--allow-partial"], "`--allow-partial` is about bundles"),
        (["-o", "it", "--rows", "orc", "--signature", "sequence=3"], "`--signature` is about bundles"),
        (["--signing-key", "key.pem"], "`--signing-key` is about bundles"),
        (["-o", "it", "--rows", "csv"], "parquet"),
    ],
)
def test_options_about_bundles_are_refused_without_bundles(
    lake: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["state", "build", "exports", "-p", "lake.yaml", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (lake / "it").exists()
