"""A real Airflow obeys the table of its documentation, with what differs as readings, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_server import Airflow, airflow
from checkout import ROOT

from privtab.command._app import run

POLICY = ROOT / "policy_src" / "airflow" / "3.3.yaml"
READINGS = "@instance/list_assets=server,instance/list_event_logs=server"

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("airflow")]


@pytest.fixture
def server() -> Iterator[Airflow]:
    with airflow() as running:
        yield running


def test_every_cell_agrees_with_the_readings_of_the_server(
    server: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "examples" / "conform")  # where the class is
    output = tmp_path / "report.json"
    driver = ["--driver", "airflow_driver:Driver", "--url", server.url, "--set", f"secret={server.secret}"]
    code = run(["conform", f"{POLICY}{READINGS}", *driver, "--format", "json", "-o", str(output)])
    report = json.loads(output.read_text(encoding="utf-8"))
    assert {row["row"]: row["verdict"] for row in report["rows"] if row["verdict"] != "agrees"} == {}
    assert (code, report["failure"], report["left"]) == (0, None, [])
