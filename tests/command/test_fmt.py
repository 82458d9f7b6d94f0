from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOOD = "privtab: 1\nsystem: shop\nversion: one\nentities: {shop:}\nprivileges: [READ]\n"
UGLY = "privtab:   1\nsystem: 'shop'\nversion: one\nentities: {shop: }   # one\nprivileges: [READ]\n"
TIDY = "privtab: 1\nsystem: shop\nversion: one\nentities: {shop:}  # one\nprivileges: [READ]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy, one that is laid out already, scenarios, and a file that is neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ugly.yaml").write_text(UGLY)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "ugly.scenarios.yaml").write_text("scenarios: 1\ncases:\n- {user: a }\n")
    (tmp_path / "state.yaml").write_text("members:\n- {user: a }\n")
    return tmp_path


def feed(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


def test_a_folder_has_its_policies_and_scenarios_laid_out(privtab: Callable[..., Any], folder: Path) -> None:
    before = (folder / "good.yaml").stat().st_mtime_ns
    ran = privtab("fmt", folder)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "ugly.scenarios.yaml",
        "ugly.yaml",
        "2 files reformatted, 1 file unchanged",
    ]
    assert (folder / "ugly.yaml").read_text() == TIDY
    assert (folder / "ugly.scenarios.yaml").read_text() == "scenarios: 1\ncases:\n  - {user: a}\n"
    assert (folder / "state.yaml").read_text() == "members:\n- {user: a }\n", "not of this kind"
    assert (folder / "good.yaml").stat().st_mtime_ns == before, "not written without need"
    assert privtab("fmt", folder).out == "3 files unchanged\n"


def test_any_yaml_file_can_be_named(privtab: Callable[..., Any], folder: Path) -> None:
    assert privtab("fmt", "state.yaml").code == 0
    assert (folder / "state.yaml").read_text() == "members:\n  - {user: a}\n"


def test_check_writes_nothing_and_fails(privtab: Callable[..., Any], folder: Path) -> None:
    ran = privtab("fmt", folder, "--check")
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "2 files would be reformatted, 1 file unchanged"
    assert (folder / "ugly.yaml").read_text() == UGLY
    assert privtab("fmt", "good.yaml", "--check").code == 0


def test_diff_shows_and_writes_nothing(privtab: Callable[..., Any], folder: Path) -> None:
    ran = privtab("fmt", "ugly.yaml", "--diff")
    assert ran.code == 0
    assert ran.out.splitlines()[:4] == ["--- ugly.yaml", "+++ ugly.yaml", "@@ -1,5 +1,5 @@", "-privtab:   1"]
    assert "+entities: {shop:}  # one" in ran.out
    assert (folder / "ugly.yaml").read_text() == UGLY
    assert privtab("fmt", "ugly.yaml", "--diff", "--check").code == 1


def test_json_says_what_happened(privtab: Callable[..., Any], folder: Path) -> None:
    document = json.loads(privtab("fmt", "ugly.yaml", "good.yaml", "--check", "--format", "json").out)
    assert document == [
        {"path": "ugly.yaml", "changed": True, "written": False},
        {"path": "good.yaml", "changed": False, "written": False},
    ]
    assert json.loads(privtab("fmt", "ugly.yaml", "--format", "json").out)[0]["written"] is True


def test_standard_input_comes_back_laid_out(
    privtab: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, UGLY.encode())
    ran = privtab("fmt", "-")
    assert (ran.code, ran.out, ran.err) == (0, TIDY, "")
    feed(monkeypatch, UGLY.encode())
    assert privtab("fmt", "-", "--check").code == 1
    feed(monkeypatch, b"a: [1\n")
    ran = privtab("fmt", "-")
    assert (ran.code, ran.out) == (1, "")
    assert "<stdin>:2:1: error[P002" in ran.err
    assert privtab("fmt", "-", "ugly.yaml").code == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [("privtab: 1\nsystem: [\n", "P002"), (GOOD + "system: twice\n", "P005"), ("privtab: 1\nentitis: {}\n", "P006")],
)
def test_nothing_is_written_if_a_file_has_errors(
    privtab: Callable[..., Any], folder: Path, text: str, code: str
) -> None:
    (folder / "wrong.yaml").write_text(text)
    ran = privtab("fmt", folder)
    assert ran.code == 1
    assert f"error[{code}" in ran.err
    assert (folder / "ugly.yaml").read_text() == UGLY
    assert (folder / "wrong.yaml").read_text() == text


def test_names_and_structure_do_not_matter(privtab: Callable[..., Any], folder: Path) -> None:
    (folder / "ugly.yaml").write_text(
        "privtab: 1\nsystem: s\nversion:  v\nentities: {a: }\nprivileges: [READ]\ntables: {b: {c: READ (d)}}\n"
    )
    assert privtab("fmt", "ugly.yaml").code == 0


def test_a_link_stays_one_and_modes_stay(privtab: Callable[..., Any], folder: Path) -> None:
    (folder / "ugly.yaml").chmod(0o640)
    (folder / "link.yaml").symlink_to("ugly.yaml")
    assert privtab("fmt", "link.yaml").code == 0
    assert (folder / "link.yaml").is_symlink()
    assert (folder / "ugly.yaml").read_text() == TIDY
    assert (folder / "ugly.yaml").stat().st_mode & 0o777 == 0o640


def test_missing_files_are_reported(privtab: Callable[..., Any], folder: Path) -> None:
    assert privtab("fmt").code == 2
    assert privtab("fmt", "nope.yaml").code == 3
    (folder / "empty").mkdir()
    assert privtab("fmt", "empty").code == 2
