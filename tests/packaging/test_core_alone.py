"""The core works alone: its commands answer while no package beside it can be imported, and what lives in one names it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import PACKAGES, PYPROJECT, ROOT, SOURCE_ROOTS, modules

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("privtab_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from privtab.command import main
main()
"""
REQUEST = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "read"},
    "resource": {"type": "tab", "id": "a/b"},
}
POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {cat: {tab:}}
privileges: [READ]
tables:
  tab:
    read: READ (tab)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lake.yaml").write_text(POLICY)
    (tmp_path / "state.yaml").write_text("grants: []\n")
    (tmp_path / "asked.jsonl").write_text(json.dumps(REQUEST) + "\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("installed", [False, True])
def test_the_core_answers_alone(installed: bool, folder: Path, environment: Callable[..., Any]) -> None:
    python = environment("compiler").python if installed else sys.executable

    def privtab(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-c", BLOCKED, *words]
        return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=60)

    def out(*words: str) -> str:
        ran = privtab(*words)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert out("--version")
    out("lint", "lake.yaml")
    out("fmt", "--check", "lake.yaml")
    out("compile", "lake.yaml", "--state", "state.yaml", "-o", "out")
    assert json.loads(out("describe", "lake.yaml", "--format", "json"))["system"] == "lake"
    decided = out("decide", "-p", "lake.yaml", "-s", "state.yaml", "-r", "asked.jsonl")
    assert json.loads(decided)["decision"] is False
    out("state", "validate", "state.yaml", "-p", "lake.yaml")
    out("state", "pack", "state.yaml", "-p", "lake.yaml", "-o", "state.tar.gz")
    out("bundle", "inspect", "state.tar.gz")
    out("schema")
    out("init", "shop")
    for words in (
        ("explain", "ann", "read", "tab:a/b", "-p", "lake.yaml", "-s", "state.yaml"),
        ("diff", "-s", "state.yaml", "-s", "state.yaml", "-p", "lake.yaml"),
        ("state", "validate", "store:grants.db", "-p", "lake.yaml"),
        ("compile", "lake.yaml", "--door", "trino", "-o", "out"),
    ):
        ran = privtab(*words)
        assert ran.returncode == 2, (words, ran)
        assert "is in the package `privtab_" in ran.stderr, (words, ran)


def test_every_folder_of_packages_is_a_source_root() -> None:
    """A build leaves a root out in silence that `pyproject.toml` does not name, or that does not exist."""
    folders = {path for path in (ROOT / "packages").iterdir() if path.is_dir()}
    assert {root.parent for root in SOURCE_ROOTS[1:]} == folders
    assert all(root.is_dir() for root in SOURCE_ROOTS)
    names = [path.relative_to(ROOT).as_posix() for path in PACKAGES]
    assert sorted(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == sorted(names)
    for tool, key in (("mypy", "mypy_path"),):
        assert {root.relative_to(ROOT).as_posix() for root in SOURCE_ROOTS} <= set(
            PYPROJECT["tool"][tool][key].split(":")
        )
    pythonpath = PYPROJECT["tool"]["pytest"]["ini_options"]["pythonpath"]
    assert {root.relative_to(ROOT).as_posix() for root in SOURCE_ROOTS} <= set(pythonpath)
    for folder in folders:
        assert (folder / "README.md").is_file(), folder
        assert (folder / "tests").is_dir(), folder


@pytest.mark.slow
def test_every_import_package_is_in_the_wheel(wheel: Path) -> None:
    import zipfile

    with zipfile.ZipFile(wheel) as packed:
        there = set(packed.namelist())
    wanted = {path.relative_to(package.parent).as_posix() for package in PACKAGES for path in package.rglob("*.py")}
    assert wanted <= there
    assert dict(modules())
