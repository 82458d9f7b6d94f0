"""The page of logged decisions has the columns of a row, as the program reads them."""

from __future__ import annotations

import json

import pytest
from checkout import ROOT

from privtab.command._app import run
from privtab_logs.schema import COLUMNS, log_schema

PAGE = ROOT / "docs" / "reference" / "logs.md"


def test_the_table_of_columns_is_that_of_the_schema() -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## A row\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert [(name.strip("`"), meaning) for name, _, meaning in rows] == [
        (name, meaning) for name, _, meaning in COLUMNS
    ]


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "decisions"]) == 0
    assert json.loads(capsys.readouterr().out) == log_schema()
