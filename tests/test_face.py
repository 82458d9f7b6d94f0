"""What packages take of the core: the numbers on the architecture page, which only fall until the core has a face of its own."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest
from checkout import PACKAGES, ROOT, modules

PAGE = ROOT / "docs" / "architecture.md"
HEADING = "\n## What packages take of the core\n"


@cache
def taken() -> dict[str, frozenset[str]]:
    """The names of the core that each package imports, such as `privtab.base.errors.UsageError`."""
    found: dict[str, set[str]] = {package.name: set() for package in PACKAGES[1:]}
    for name, path in modules():
        package = name.partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if package in found else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "privtab":
                found[package] |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {package: frozenset(names) for package, names in found.items()}


def private(names: frozenset[str]) -> int:
    return sum(any(part.startswith("_") and not part.startswith("__") for part in name.split(".")) for name in names)


def rows() -> dict[str, tuple[int, int]]:
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    cells = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    return {name: (int(names), int(of_them)) for name, names, of_them in cells[2:]}


@pytest.mark.parametrize("package", sorted(taken()))
def test_the_page_says_how_much_a_package_takes(package: str) -> None:
    names = taken()[package]
    assert rows()[package] == (len(names), private(names)), "fewer is better: lower the number; more needs a reason"


def test_the_page_says_how_much_all_take() -> None:
    everything = frozenset().union(*taken().values())
    once = [name for name, times in Counter(name for names in taken().values() for name in names).items() if times == 1]
    assert rows()["all together"] == (len(everything), private(everything))
    assert rows()["by one alone"] == (len(once), private(frozenset(once)))
