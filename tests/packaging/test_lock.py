"""The lock files hold what pyproject.toml asks for, each package by its hash."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest
from checkout import ROOT

LOCKS = [
    ("requirements/compiler.lock", ["compiler"]),
    ("requirements/run.lock", ["all"]),
    ("requirements/test.lock", ["all", "dev"]),
]


@pytest.fixture(scope="module")
def locked() -> ModuleType:
    spec = importlib.util.spec_from_file_location("locked", ROOT / ".ci" / "locked.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "extras"), LOCKS)
def test_a_lock_file_is_not_stale(name: str, extras: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / ".ci" / "locked.py", name, *extras], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("name", "extras"), LOCKS)
def test_a_stale_lock_file_is_reported(name: str, extras: list[str], locked: ModuleType) -> None:
    lock = (ROOT / name).read_text(encoding="utf-8")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert locked.stale(lock, pyproject, extras) == []
    newer = pyproject.replace('dependencies = ["requests>=', 'dependencies = ["dd>=0.6", "requests>=9')
    assert newer != pyproject
    assert locked.stale(lock, newer, extras)[0].split(" ")[0] == "dd>=0.6"
    assert any(line.startswith("requests") and line.endswith("there") for line in locked.stale(lock, newer, extras))
    bare = re.sub(r"(\nlark==\S+).*?(?=\n[a-z])", r"\1", lock, count=1, flags=re.DOTALL)
    assert locked.stale(bare, pyproject, extras) == ["lark has no hash"]


def test_all_files_agree(locked: ModuleType) -> None:
    *others, tested = (locked.pins((ROOT / name).read_text(encoding="utf-8")) for name, _ in LOCKS)
    for lock in others:
        for name, versions in lock.items():
            assert {version for version, _ in versions} == {version for version, _ in tested[name]}, name


def test_the_image_takes_packages_from_the_lock_file() -> None:
    composed = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "--require-hashes --no-deps -r /src/run.lock" in composed
    for variable in ("PRIVTAB_OPA_IMAGE", "PRIVTAB_PYTHON_IMAGE"):
        assert variable in composed
