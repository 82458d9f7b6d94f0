"""A page beside a policy: each cell that the policy decides otherwise is found, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = """# Project roles

| Action | Guest | Admin |
|---|---|---|
| open | ✓ | ✓ |
| shut | - | ✓ |

# Shop

| Operation | Requires |
|---|---|
| see | READ and WRITE |
| sell | anyone |
"""
Run = Callable[..., Any]


@pytest.fixture
def page(privtab: Run, tmp_path: Path) -> Path:
    """A page, and its policy beside it."""
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    assert privtab("import", path, "-o", tmp_path / "page.yaml").code == 0
    return path


def compared(privtab: Run, page: Path, old: str = "", new: str = "") -> tuple[int, str]:
    policy = page.with_suffix(".yaml")
    text = policy.read_text(encoding="utf-8")
    assert old in text
    policy.write_text(text.replace(old, new, 1), encoding="utf-8")
    result = privtab("import", page, "--against", policy)
    return result.code, result.err


def test_a_page_is_as_its_own_draft(privtab: Run, page: Path) -> None:
    code, text = compared(privtab, page)
    assert (code, text.splitlines()) == (
        0,
        [
            "Project roles: read as actions x roles, 2 rows, 2 roles, 3 marks",
            "Shop: read as operations x what they require, 2 rows",
        ],
    )


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "project: [OPEN]",
            "project: [OPEN, SHUT]",
            "page.md:6:10",
            "denies `project.shut` to `guest`, the policy allows it",
        ),
        (
            "project: [OPEN]",
            "project: [SHUT]",
            "page.md:5:10",
            "allows `project.open` to `guest`, the policy denies it",
        ),
        ("(project), source: 6", "(project) and OPEN (project), source: 6", "", ""),
        (
            "READ (entity) and WRITE (entity)",
            "READ (entity)",
            "page.md:12:9",
            "the page says `READ (entity) and WRITE (entity)` of `shop.see`",
        ),
        ("READ (entity) and WRITE (entity)", "WRITE (entity) and READ (entity)", "", ""),
        ("  guest:", "  stranger:", "page.md:5:10", "the policy has no role `guest`"),
        ("sell: {", "buy: {", "page.md:13:10", "of `shop.sell`, the policy has no such row"),
        ("sell: {", "buy: {", "page.md:3:3", "the row `shop.buy` of the policy is not on the page"),
        ("    open: {", "    enter: {", "page.md:5:10", "the policy has no row `project.open`"),
    ],
)
def test_what_differs_is_found_in_its_cell(
    old: str, new: str, place: str, message: str, privtab: Run, page: Path
) -> None:
    code, text = compared(privtab, page, old, new)
    assert code == bool(message)
    assert not message or any(place in line and message in line for line in text.splitlines())


def test_what_is_not_read_differs(privtab: Run, page: Path) -> None:
    page.write_text(PAGE.replace("| shut | - |", "| shut | ? |"), encoding="utf-8")
    code, text = compared(privtab, page)
    assert (code, "cannot read `?`" in text) == (1, True)
