"""A real MLflow obeys the table of its documentation, with what differs as readings, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from checkout import ROOT
from mlflow_server import ADMIN, Mlflow, mlflow

from privtab.command._app import run
from privtab.pipeline import load_program
from privtab_testing.conform.document import load
from privtab_testing.conform.plan import PREFIX

POLICY = ROOT / "policy_src" / "mlflow" / "3.17.yaml"
DRIVER = POLICY.with_name("conform.yaml")
READINGS = "@user/create=server"


def test_the_driver_asks_every_row() -> None:
    program = load_program(POLICY)
    assert set(load(DRIVER, program).operations) == set(program.rules)


@pytest.fixture
def server() -> Iterator[Mlflow]:
    with mlflow() as running:
        yield running


@pytest.mark.long
@pytest.mark.xdist_group("mlflow")
def test_every_cell_agrees_with_the_readings_of_the_server(server: Mlflow, tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    options = ["--driver", str(DRIVER), "--url", server.url, "--token-file", str(server.secret), "--limit", "jobs=2"]
    code = run(["conform", f"{POLICY}{READINGS}", *options, "--format", "json", "-o", str(output)])
    report = json.loads(output.read_text(encoding="utf-8"))
    assert (code, report["failure"], report["left"]) == (0, None, [])
    assert {row["row"] for row in report["rows"] if row["verdict"] != "agrees"} == set()
    users = requests.get(f"{server.url}/api/2.0/mlflow/users/list", auth=ADMIN, timeout=30).json()["users"]
    assert [user["username"] for user in users if user["username"].startswith(PREFIX)] == []
