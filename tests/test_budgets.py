"""The size of the code: the core and each package keep to their budgets in `docs/architecture.md`, and budgets fall with the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from checkout import PACKAGES, ROOT, sources

PAGE = ROOT / "docs" / "architecture.md"
SLACK = 200
"""Lines that a budget may lie above what it is for, so that small changes need none."""
LONGEST = 500
MOST_ROOMS = 13
LOOSE = {"__init__.py", "__main__.py", "pipeline.py"}
"""The modules of the core that lie in no room."""
MOST_ENTRIES = 26
"""Entries of the top level of the repository."""


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the page, without backquotes."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [[cell.replace("`", "") for cell in row] for row in found[2:]]


SIZES = {package.name: sum(map(lines, package.rglob("*.py"))) for package in PACKAGES}
BUDGETS = {name: int(budget.replace(",", "")) for name, budget, _ in table("Budgets")}


def test_the_core_and_every_package_have_a_budget() -> None:
    assert BUDGETS.keys() == SIZES.keys()


@pytest.mark.parametrize("name", BUDGETS)
def test_a_package_keeps_to_its_budget(name: str) -> None:
    assert SIZES[name] <= BUDGETS[name], "make it smaller; a budget is raised in a commit of its own, which says why"
    assert BUDGETS[name] <= SIZES[name] + SLACK, f"it has {SIZES[name]} lines: lower its budget"


def test_no_file_is_too_long() -> None:
    assert not [name for name, path in sources().items() if lines(path) > LONGEST]


def test_the_text_says_what_all_budgets_are_together() -> None:
    text = PAGE.read_text(encoding="utf-8")
    stated = [int(number.replace(",", "")) for number in re.findall(r"together ([\d,]+) lines", text)]
    assert stated == [sum(BUDGETS.values())]


def test_the_core_has_few_rooms_and_nothing_beside_them() -> None:
    core = PACKAGES[0]
    assert {path.name for path in core.glob("*.py")} == LOOSE
    assert len([path for path in core.iterdir() if (path / "__init__.py").is_file()]) <= MOST_ROOMS


def test_the_top_level_is_short() -> None:
    command = ["git", "ls-files"]  # whichever git there is
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("not a checkout of git")
    assert len({name.partition("/")[0] for name in listed.splitlines()}) <= MOST_ENTRIES
