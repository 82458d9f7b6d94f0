"""Add a kind of atom, `in group NAME`, by a patch: no more files than these, and no tool that forgets it in silence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, SOURCE_ROOTS

PATCH = Path(__file__).with_name("toy_atom.patch")
WORLDS = Path(__file__).with_name("toy_worlds.py")
MOST_FILES = 17
INTERPRETERS = (
    "compiler/privtab/backends/rego/atoms.py",
    "compiler/privtab/engines/kernel.py",
    "compiler/privtab/engines/plan.py",
    "compiler/privtab/reference/evaluate.py",
    "packages/privtab-analysis/src/privtab_analysis/rights.py",
    "packages/privtab-analysis/src/privtab_analysis/entitlements/evaluator.py",
)
"""By which rows of a state an atom holds: the six of the architecture page."""


def applied(folder: Path, *options: str) -> None:
    """Apply the patch in a folder; if this fails, the patch needs the new text around its lines."""
    command = ["git", "apply", "-C1", *options, str(PATCH)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_a_kind_of_atom_is_few_files() -> None:
    files = re.findall(r"^\+\+\+ b/(.+)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(INTERPRETERS) < set(files)
    assert len(files) <= MOST_FILES


def test_the_patch_fits() -> None:
    applied(ROOT, "--check")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the checkout, in a folder that no repository contains."""
    folder = tmp_path_factory.mktemp("toy")
    for name in ("compiler", "packages", "templates", "pyproject.toml"):
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        else:
            shutil.copy(source, target)
    return folder


def errors(folder: Path) -> set[str]:
    """The errors of mypy without their lines, so that they can be compared with those before the patch."""
    sources = [str(root.relative_to(ROOT)) for root in SOURCE_ROOTS]
    command = [sys.executable, "-m", "mypy", "--cache-dir", ".mypy_cache", *sources]
    ran = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=900)
    assert ran.returncode in (0, 1), ran.stderr
    return {re.sub(r":\d+:", ":", line) for line in ran.stdout.splitlines() if ": error:" in line}


@pytest.mark.long
def test_mypy_finds_each_interpreter_that_lacks_a_kind(copy: Path) -> None:
    before = errors(copy)
    applied(copy, *(f"--exclude={path}" for path in INTERPRETERS))
    found = errors(copy) - before
    assert {line.partition(":")[0] for line in found if "assert_never" in line} == set(INTERPRETERS)
    applied(copy, *(f"--include={path}" for path in INTERPRETERS))
    assert errors(copy) <= before


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_tool_forgets_the_kind(copy: Path, seed: int, search_seed: int) -> None:
    if "InGroup" not in (copy / "compiler/privtab/ir/nodes.py").read_text(encoding="utf-8"):
        applied(copy)
    path = os.pathsep.join(str(copy / root.relative_to(ROOT)) for root in SOURCE_ROOTS)
    command = [sys.executable, str(WORLDS), str(search_seed + seed)]
    ran = subprocess.run(
        command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
