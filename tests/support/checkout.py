"""The checkout that is tested: its folders, the source roots of `pyproject.toml`, and the import packages in them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ROOT / "policy_src"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCE_ROOTS = tuple(ROOT / folder for folder in PYPROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"])
"""The folders of import packages: the core's, and one for each package beside it."""
PACKAGES = tuple(init.parent for root in SOURCE_ROOTS for init in sorted(root.glob("*/__init__.py")))
"""The import packages, the core first."""
PYTHONPATH = os.pathsep.join(map(str, SOURCE_ROOTS))
"""The value of the variable for processes that run the checkout."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of every import package by its dotted name, packages by that of their folder."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def sources() -> dict[str, Path]:
    """Every module by its path below its source root, those of the core without `privtab/`: `ir/nodes.py`, `privtab_web/asgi.py`."""
    found = {path.relative_to(root).as_posix(): path for root in SOURCE_ROOTS for path in sorted(root.rglob("*.py"))}
    return {name.removeprefix("privtab/"): path for name, path in found.items()}
