"""The scripts of `make demo`, run as a reader runs them."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import PYTHONPATH, ROOT

from privtab.command._app import run
from privtab.engines.opa.server import OpaServer


def script(name: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **environment}
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_the_walkthrough_answers_as_the_document_does() -> None:
    ran = script("gravitino_walkthrough.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "21 questions, 0 answered against the document" in ran.stdout
    assert [int(line[:2]) for line in ran.stdout.splitlines() if line[:2].strip().isdigit()][:13] == list(range(1, 14))


def test_the_demo_begins_with_a_decision_and_says_how_long_the_rest_takes() -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as demo:
        assert demo.stdout is not None
        output = ""
        for line in demo.stdout:
            output += line
            if "The rest takes" in line:
                break
        demo.terminate()
    assert "DENY" in output or "ALLOW" in output
    assert "privtab compile" not in output
    assert " minutes on two cores" in output


@pytest.fixture
def opa(tmp_path: Path) -> Iterator[OpaServer]:
    state = ROOT / "policy_src" / "gravitino" / "state.yaml"
    policy = ROOT / "policy_src" / "gravitino" / "1.1.0.yaml"
    assert run(["compile", str(policy), "-o", str(tmp_path), "--state", str(state)]) == 0
    bundles = tmp_path / "gravitino" / "1.1.0"
    with OpaServer([bundles / "policy.tar.gz", bundles / "state.tar.gz"]) as server:
        yield server


@pytest.mark.slow
def test_the_driver_gates_reads_filters_listings_and_writes_its_results(opa: OpaServer, tmp_path: Path) -> None:
    ran = script("driver_gate.py", tmp_path / "out", OPA_URL=opa.url)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    alice, bob = ran.stdout.split("bob reads demo/hive/sales/orders")
    assert "✓ 3 rows: Ada 120" in alice
    assert "✗ refused by gravitino/table/load" in bob
    assert "deny SELECT_TABLE (table:demo/hive/sales/orders) to role:contractor" in bob
    assert "10,000 requests decided" in bob
    (part,) = (tmp_path / "out" / "summary.csv").glob("part-*.csv")
    rows = {row["user"]: row for row in csv.DictReader(part.open(encoding="utf-8"))}
    assert len(rows) == 11
    assert float(rows["mia"]["drop"]) == 100
    assert float(rows["rex"]["load"]) == 0, "a removed user is refused everything, what they own too"
    assert list((tmp_path / "out" / "decisions.parquet").glob("*.parquet"))


@pytest.mark.long
def test_without_an_opa_the_driver_reads_nothing(tmp_path: Path) -> None:
    ran = script("driver_gate.py", tmp_path / "out", OPA_URL="http://127.0.0.1:9")
    assert ran.returncode != 0
    assert "DecisionUnavailable" in ran.stderr
    assert "rows:" not in ran.stdout


@pytest.mark.slow
def test_the_spark_walkthrough_decides_lists_and_certifies(tmp_path: Path) -> None:
    ran = script("spark_walkthrough.py", tmp_path / "certified")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "alice may load table:demo/hive/sales/orders" in ran.stdout
    assert "user:nick may not `load`" in ran.stdout
    assert "load  alice  grant role:analyst at schema:demo/hive/sales" in ran.stdout
    assert (tmp_path / "certified" / "report.html").is_file()
