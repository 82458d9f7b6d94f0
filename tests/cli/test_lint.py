from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def broken(policy: Path) -> None:
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text.replace("open: READ", "open: REED").replace("create: WRITE (shelf)", "create: WRIT (shelf)"))


def test_a_clean_policy_is_said_to_be_clean(privtab: Callable[..., Any], policy: Path) -> None:
    ran = privtab("lint", policy)
    assert ran.code == 0, ran.err
    assert "no findings" in ran.out or "warning" in ran.err


def test_all_findings_come_at_once_sorted_by_place(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    broken(policy)
    other = tmp_path / "another.yaml"
    other.write_text(policy.read_text(encoding="utf-8").replace("system: shop", "system: shop2"), encoding="utf-8")
    ran = privtab("lint", policy, other, "--format", "json")
    assert ran.code == 1
    found = [one for one in json.loads(ran.out) if one["severity"] == "error"]
    places = [(one["path"], one["line"], one["column"]) for one in found]
    assert len(places) == 4
    assert places == sorted(places)
    assert {one["name"] for one in found} == {"unknown-privilege"}
    assert "READ" in found[0]["help"]


def test_for_people_the_line_is_shown_with_a_caret(privtab: Callable[..., Any], policy: Path) -> None:
    broken(policy)
    ran = privtab("lint", policy)
    assert ran.code == 1
    line = next(n for n, text in enumerate(policy.read_text().splitlines(), start=1) if "REED" in text)
    assert f"{policy}:{line}:" in ran.err
    assert "open: REED (store)" in ran.err
    assert "^^^^" in ran.err
    assert "2 errors" in ran.err.splitlines()[-1]


def test_a_folder_is_searched_for_policies_alone(
    privtab: Callable[..., Any], policy: Path, state: Path, tmp_path: Path
) -> None:
    assert state.parent == tmp_path
    assert privtab("lint", tmp_path).code == 0
    broken(policy)
    assert privtab("lint", tmp_path).code == 1


def test_without_policies_there_is_nothing_to_check(
    privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert privtab("lint").code == 2


def test_shipped_policies_have_no_errors(privtab: Callable[..., Any]) -> None:
    ran = privtab(
        "lint", "cdap/initial", "cdap/draft", "cdap/revised", "cdap/final", "gravitino/1.1.0", "streams/teracloud"
    )
    assert ran.code == 0, ran.err
