"""Executors without privtab are found out by one tiny task, and one sentence says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import decision_rows
import pytest
import spark_sessions

from privtab import pipeline
from privtab.bundle import state_bundle
from privtab.pipeline import policy_bundle
from privtab.state.load import load
from privtab.state.validate import validate


@pytest.mark.slow
def test_executors_without_privtab_are_told_in_one_sentence(tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    program = pipeline.load_program(policy)
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    (bundles / "policy.tar.gz").write_bytes(policy_bundle(program))
    (bundles / "state.tar.gz").write_bytes(state_bundle(program, validate(program, load(state))[0]))
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare" / "bin" / "python"
    # What is on PYTHONPATH would be on that of the executors.
    environment = {k: v for k, v in spark_sessions.environment().items() if k != "PYTHONPATH"} | {
        "PYSPARK_PYTHON": str(bare)
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("preflighted.py")), policy, state, str(bundles)],
        capture_output=True, text=True, check=False, timeout=420, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = {line.split("\t")[0]: line.split("\t")[2] for line in done.stdout.splitlines()}
    assert told.pop("joins") == "answers"
    assert set(told) == {"kernel", "decide_with", "entitlements", "read_state", "register", "register_function"}
    version = ".".join(map(str, sys.version_info[:3]))
    (sentence,) = set(told.values())
    assert sentence == (
        f"the Python of Spark's executors, {bare} ({version}), has no `privtab` and no `pyarrow` and no `numpy`: install "
        "privtab with the extra `spark` there, or set PYSPARK_PYTHON (or `spark.pyspark.python`) to a Python that has it before Spark starts; "
        f"this program runs {sys.executable}"
    )
    assert os.linesep not in sentence
