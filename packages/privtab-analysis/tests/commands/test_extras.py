"""Without the library of an extra, a command says how to install the extra, and ends without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import POLICIES, PYTHONPATH

STATE = str(POLICIES / "gravitino" / "state.yaml")


@pytest.mark.parametrize(
    ("library", "arguments", "said"),
    [
        ("sqlglot", ["filter", "ann", "load", "table"], "`privtab filter` needs sqlglot"),
        (
            "sqlalchemy",
            ["filter", "ann", "load", "table", "--dialect", "sqlite", "--rows", "store:rows.db", "--table", "rows"],
            "`--rows store:…` needs sqlalchemy",
        ),
        ("sqlalchemy", ["what-can", "ann", "--steps", "any"], "a path through a store needs sqlalchemy"),
    ],
)
def test_a_missing_library_is_named(library: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from privtab.command import main; main()"
    command = [sys.executable, "-c", code, *arguments, "-p", "gravitino/1.1.0", "-s", STATE]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    (tmp_path / "privtab.toml").write_text(f'policies = ["{POLICIES}"]\n', encoding="utf-8")
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    shown = " ".join(ran.stderr.split())
    assert ran.returncode == 2, ran.stderr
    assert said in shown
    assert "pip install" in shown
    assert "Traceback" not in shown


def test_what_is_about_no_entity_is_shown_at_the_root(privtab: Callable[..., Any]) -> None:
    ran = privtab("what-can", "ann", "-p", "cdap/final", "-s", "sample:cdap/all")
    assert ran.out.splitlines()[3:5] == ["anywhere", "  /      [delete_all instance]"]
