"""Executors with another Python: one tiny task looks at it; privtab is sent there if it lacks only that, else one sentence says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import decision_rows
import pytest
import spark_sessions
from pyspark.sql import SparkSession

from privtab import pipeline
from privtab.bundle import state_bundle
from privtab.pipeline import policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import preflight

VERSION = ".".join(map(str, sys.version_info[:3]))
PACKAGES = ("numpy", "numpy.libs", "pyarrow", "pandas", "dateutil", "six.py", "pytz", "tzdata")
CLIENT = ("requests", "urllib3", "idna", "certifi", "charset_normalizer")
ANSWERS = [["ann", True], ["nobody", False]]
CONNECT = pytest.mark.parametrize(
    "remote", [pytest.param("", id="classic"), pytest.param("connect", id="connect", marks=pytest.mark.long)]
)


def python(folder: Path, packages: Sequence[str]) -> tuple[Path, Path]:
    """A Python with some packages of this one, and its folder of packages."""
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in packages:
        installed = Path(sysconfig.get_path("purelib")) / name
        if installed.exists():
            (site / name).symlink_to(installed)
    return folder / "bin" / "python", site


def session_report(folder: Path, executors: Path, remote: str) -> dict[str, Any]:
    """What the entry points say in a session whose executors have that Python."""
    policy, state = decision_rows.files(folder)
    program = pipeline.load_program(policy)
    bundles = folder / "bundles"
    bundles.mkdir()
    (bundles / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (bundles / "state.tar.gz").write_bytes(state_bundle(program, validate(program, load_raw_state(state))[0]))
    # What is on PYTHONPATH would be on that of the executors.
    environment = {k: v for k, v in spark_sessions.environment().items() if k != "PYTHONPATH"} | {
        "PYSPARK_PYTHON": str(executors)
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("preflighted.py")), policy, state, str(bundles), remote],
        capture_output=True, text=True, check=False, timeout=900, env=environment, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@CONNECT
@pytest.mark.slow
def test_executors_without_packages_are_reported_in_one_sentence(tmp_path: Path, remote: str) -> None:
    bare, _ = python(tmp_path / "bare", ())
    found = session_report(tmp_path, bare, remote)
    lacking = f"the Python of Spark's executors, {bare} ({VERSION}), has no `pyarrow` and no `numpy`"
    assert f"  {lacking}" in found.pop("plan").splitlines()
    assert set(found) == {
        "auto",
        "kernel",
        "decide_with",
        "entitlements",
        "read_state",
        "register_function",
    }
    advice = (
        "install privtab with the extra `spark` there, or set PYSPARK_PYTHON (or `spark.pyspark.python`) to a Python that has it "
        f"before Spark starts; this program runs {sys.executable}"
    )
    assert found.pop("decide_with") == f"{lacking} and no `requests`: {advice}"
    (sentence,) = set(found.values())
    assert sentence == f"{lacking}: {advice}"
    assert os.linesep not in sentence


@pytest.mark.slow
def test_privtab_is_sent_to_executors_that_lack_only_that(tmp_path: Path) -> None:
    other, _ = python(tmp_path / "other", (*PACKAGES, *CLIENT))
    found = session_report(tmp_path, other, "")
    step = f"  the Python of the executors, {other} ({VERSION}), has no privtab: it is sent to it"
    assert step in found.pop("plan").splitlines()
    answered(found)


@pytest.mark.long
def test_privtab_replaces_another_version_on_executors_of_connect(tmp_path: Path) -> None:
    other, site = python(tmp_path / "other", (*PACKAGES, *CLIENT))
    (site / "privtab" / "spark").mkdir(parents=True)
    (site / "privtab" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    (site / "privtab" / "spark" / "__init__.py").write_text("raise RuntimeError\n")
    found = session_report(tmp_path, other, "connect")
    step = f"  the Python of the executors, {other} ({VERSION}), has another version of privtab: this one is sent to it"
    assert step in found.pop("plan").splitlines()
    answered(found)


def answered(found: dict[str, Any]) -> None:
    """Every entry point answers."""
    for name in ("kernel", "auto", "decide_with", "register_function"):
        assert found.pop(name) == ANSWERS, name
    assert found.pop("entitlements") > 0
    assert found == {"read_state": 0}


def test_the_code_of_a_zip_file_and_of_its_folder_are_the_same(tmp_path: Path) -> None:
    archive = tmp_path / "privtab.zip"
    archive.write_bytes(preflight.archive())
    script = "import importlib.util, json, sys\nfrom privtab_spark import preflight\nprint(privtab.__file__, preflight.code_digest())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import {', '.join(preflight._packages())}\n{script}"],
        capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(archive)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, digest = done.stdout.split()
    assert where.startswith(str(archive))
    assert digest == preflight.code_digest()


def test_a_session_is_looked_at_once(spark: SparkSession) -> None:
    looking = preflight.begin(spark)
    assert preflight.begin(spark) is looking
    assert preflight.workers(spark) is looking.result() is preflight.check_executors(spark)
    assert looking.result().code == "own"


@pytest.mark.parametrize("arrow_udf", [True, False])
def test_each_task_reports_once(arrow_udf: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    if not arrow_udf:  # Spark 4.0
        monkeypatch.delattr("pyspark.sql.pandas.functions.arrow_udf", raising=False)
    batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(batch)
    spark.conf.set(batch, "1000")
    try:
        found = [row["report"] for row in preflight._reports(spark, lambda number: f"report {number}").collect()]
    finally:
        spark.conf.set(batch, str(before))
    assert found == ["report 0"] * preflight._TASKS


@pytest.mark.parametrize("own", [True, False])
def test_workers_with_the_code_of_the_driver_import_what_decides(own: bool) -> None:
    digest = "preflight.code_digest()" if own else "'another'"
    script = (
        "import json, sys, privtab_spark\nfrom privtab_spark import preflight\n"
        f"found = json.loads(preflight._inspection(preflight.NEEDED, {digest})(0))\n"
        "print(found['lacking'], 'privtab_spark.kernel' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["[]", str(own), "True"]
