"""`privtab spark`: the jobs' options, help and errors; what they do is tested with a session, beside the jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from privtab_spark.jobs import JOBS


def words(job: str) -> list[str]:
    return ["certify"] if job == "certify" else ["spark", job]


@pytest.mark.parametrize("job", JOBS)
def test_help_has_a_summary_and_an_example(privtab: Callable[..., Any], job: str) -> None:
    ran = privtab(*words(job), "--help")
    assert ran.code == 0
    lines = [line.strip() for line in ran.out.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: privtab {' '.join(words(job))}")
    function = getattr(import_module(f"privtab_spark.jobs.{job}"), JOBS[job])
    assert lines[1] == function.__doc__.partition("\n")[0]
    assert lines[lines.index("Example:") + 1].startswith(f"privtab {' '.join(words(job))} ")
    assert all(f"--{option}" in ran.out for option in ("policy", "conf", "format"))


def test_the_jobs_are_listed(privtab: Callable[..., Any]) -> None:
    ran = privtab("spark", "--help")
    assert ran.code == 0
    assert all(job in ran.out for job in JOBS if job != "certify")


@pytest.mark.parametrize("job", JOBS)
def test_bad_usage_is_exit_code_2(privtab: Callable[..., Any], job: str) -> None:
    ran = privtab(*words(job), "--nope")
    assert ran.code == 2
    assert ran.out == ""
    assert "No such option: --nope" in ran.err


def test_a_state_that_is_missing_is_named(privtab: Callable[..., Any], tmp_path: Path) -> None:
    ran = privtab("certify", "-p", "cdap/final", "-s", tmp_path / "none.yaml", "-o", tmp_path / "out")
    assert ran.code == 3
    assert "none.yaml" in ran.err
    assert not (tmp_path / "out").exists()


def test_a_shipped_state_and_one_with_a_file_to_leave_out_are_taken(
    privtab: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "grants.csv").write_text("grantee,effect,privilege,entity\nuser:ann,allow,READ,instance:i\n")
    (folder / "notes.txt").write_text("by hand\n")
    for policy, state in (("gravitino/1.1.0", "sample:gravitino"), ("cdap/final", f"{folder}?accept=notes.txt")):
        out = tmp_path / policy.partition("/")[0]
        ran = privtab("certify", "-p", policy, "-s", state, "-o", out, "--plan", "process")
        assert ran.code == 0, ran.err
        assert " entitlements of " in ran.out
        assert (out / "report.html").is_file()
    ran = privtab("certify", "-p", "gravitino/1.1.0", "-s", "sample:gravitno", "-o", tmp_path / "other")
    assert ran.code == 2
    assert "did you mean `sample:gravitino`?" in ran.err
    assert not (tmp_path / "other").exists()


def test_help_starts_no_spark(tmp_path: Path) -> None:
    source = (
        "import sys\nfrom privtab.command._app import run\ncode = run(['spark', 'decide', '--help'])\n"
        "sys.stderr.write(repr([n for n in ('pyspark', 'numpy', 'pyarrow') if n in sys.modules]))\nsys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == "[]"
