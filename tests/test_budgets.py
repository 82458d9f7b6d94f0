"""The size of the compiler: each room keeps to its budget of lines in `docs/architecture.md`, and budgets fall with the code."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from checkout import ROOT

import privtab

PACKAGE = Path(privtab.__file__).parent
PAGE = ROOT / "docs" / "architecture.md"
SLACK = 200
"""Lines that a budget may lie above its room, so that small changes need none."""
LONGEST = 500


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the page, without backquotes."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [[cell.replace("`", "") for cell in row] for row in found[2:]]


def rooms() -> Counter[str]:
    """Lines by folder of the package; `base` for its own modules."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).parts
        found[parts[0] if len(parts) > 1 else "base"] += lines(path)
    return found


BUDGETS = {tuple(names.split(", ")): (int(budget), int(aim)) for names, budget, aim in table("Budgets")}


def test_every_room_has_one_budget() -> None:
    named = [name for names in BUDGETS for name in names]
    assert sorted(named) == sorted(rooms())


@pytest.mark.parametrize("names", BUDGETS, ids=", ".join)
def test_a_room_keeps_to_its_budget(names: tuple[str, ...]) -> None:
    size = sum(rooms()[name] for name in names)
    budget, aim = BUDGETS[names]
    assert size <= budget, "make it smaller; a budget is raised in a commit of its own, which says why"
    assert budget <= max(size + SLACK, aim), f"the room has {size} lines: lower its budget"


def test_no_file_is_too_long() -> None:
    assert not [path.name for path in PACKAGE.rglob("*.py") if lines(path) > LONGEST]


def test_the_text_says_what_all_budgets_are_together() -> None:
    text = PAGE.read_text(encoding="utf-8")
    stated = [int(number.replace(",", "")) for number in re.findall(r"together ([\d,]+) lines", text)]
    assert stated == [sum(budget for budget, _ in BUDGETS.values())]
