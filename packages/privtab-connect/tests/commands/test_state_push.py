"""`privtab state push`: what it refuses before it reaches a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pushed_lake import LAKE, MAPPING


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    (tmp_path / "mapping.yaml").write_text(MAPPING, encoding="utf-8")
    (tmp_path / "state.yaml").write_text("grants: []\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


URL = "postgresql+psycopg://x@127.0.0.1:1/x"
ARGUMENTS = ("--policy", "lake.yaml", "--state", "state.yaml", "--set", "catalog=hive")


@pytest.mark.parametrize(
    ("target", "more", "code", "message"),
    [
        (URL, ("--check", "--apply"), 2, "`--check` changes nothing"),
        (
            "mysql+pymysql://x@127.0.0.1:1/x",
            (),
            2,
            "the mapping document is for postgresql, and the address is of mysql",
        ),
        ("file.json", (), 2, "cannot be opened by SQLAlchemy"),
        (URL, (), 3, "127.0.0.1"),
    ],
)
def test_errors_of_push(
    privtab: Callable[..., Any], folder: Path, target: str, more: tuple[str, ...], code: int, message: str
) -> None:
    ran = privtab("state", "push", "mapping.yaml", target, *ARGUMENTS, *more)
    assert ran.code == code
    assert message in ran.err


def test_a_wrong_state_and_a_wrong_mapping_are_told_at_their_lines(privtab: Callable[..., Any], folder: Path) -> None:
    (folder / "state.yaml").write_text(
        "grants:\n  - {grantee: user:a, effect: allow, privilege: X, entity: catalog:h}\n", encoding="utf-8"
    )
    ran = privtab("state", "push", "mapping.yaml", URL, *ARGUMENTS)
    assert ran.code == 1
    assert "state.yaml:2: grants row 1: error[S130" in ran.err
    ran = privtab("state", "push", "mapping.yaml", URL, *ARGUMENTS[:4])
    assert ran.code == 1
    assert "mapping.yaml:4" in ran.err
