"""What the source distribution and the wheel hold."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest
from checkout import PACKAGES, ROOT, SOURCE_ROOTS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def below(folder: str, *, at: str = "") -> set[str]:
    """The tracked kinds of files of a folder in the checkout, under the names that they have in the archive."""
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {at + path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_carries_templates_policies_and_opa_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in ("templates", "policy_src", "opa", "docs/rules"):
        assert below(folder, at="privtab/_data/") <= names
    assert "privtab/_data/requirements/compiler.lock" in names
    assert {"privtab/py.typed", "privtab/language/syntax/expression.lark"} <= names


def test_the_wheel_carries_nothing_but_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package.name for package in PACKAGES}


def test_the_source_distribution_carries_what_the_wheel_is_built_from(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    for folder in (
        *(root.relative_to(ROOT).as_posix() for root in SOURCE_ROOTS),
        "templates",
        "policy_src",
        "opa",
        "docs/rules",
    ):
        assert below(folder) <= names
    assert not any(name.startswith(("build/", ".venv", ".git/", "tests/")) or "/tests/" in name for name in names)
