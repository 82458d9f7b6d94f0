from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

POLICY = """
privileges: {{READ: , WRITE: , EDITOR: {{implies: [READ, WRITE]}}{more}}}
{semantics}tables: {{shelf: {{look: READ (shelf), fill: WRITE (shelf){row}}}}}
"""


def text(*, more: str = "", semantics: str = "", row: str = "") -> str:
    return POLICY.format(more=more, semantics=semantics, row=row)


def test_a_set_by_another_name(only: Callable[..., Any]) -> None:
    found = only(text(), "P342")
    assert found.message == "no row requires `EDITOR`: it stands for what it implies"
    assert found.help == "`sets: {EDITOR: [READ, WRITE]}` says the same"
    assert found.under == "EDITOR"


@pytest.mark.parametrize(
    "other",
    [
        text(row=", edit: EDITOR (shelf)"),
        text(more=", BOSS: {implies: [EDITOR, READ]}", row=", boss: BOSS (shelf)"),
        text(semantics="semantics: {deny: overrides}\n"),
    ],
    ids=["required", "implied", "denials"],
)
def test_no_finding(codes: Callable[[str], list[str]], other: str) -> None:
    assert "P342" not in codes(other)
