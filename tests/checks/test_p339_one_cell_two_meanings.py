from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def text(look: str, touch: str) -> str:
    return f"sources: {{wiki: w.txt}}\ntables: {{shelf: {{look: {{{look}}}, touch: {{{touch}}}}}}}\n"


def test_one_line_and_two_rules(only: Callable[..., Any]) -> None:
    found = only(text("requires: READ (shelf), source: 3", "requires: WRITE (shelf), source: 3"), "P339")
    assert found.message == "`touch` and `look` come from one line of the document, but differ"
    assert found.help == "correct one of them, or explain in a `note` why they differ"
    assert found.under == "touch"


@pytest.mark.parametrize(
    "touch",
    [
        "requires: READ (entity), source: 3",
        "requires: WRITE (shelf), source: 4",
        "requires: WRITE (shelf), source: [3, 4]",
        "requires: WRITE (shelf), source: 3, note: The line has two halves.",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], touch: str) -> None:
    assert "P339" not in codes(text("requires: READ (shelf), source: 3", touch))
