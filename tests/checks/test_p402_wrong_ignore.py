from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("comment", "message", "under"),
    [
        ("ignore P310", "this comment gives no reason", "# privtab: ignore P310"),
        ("ignore it", "this comment names no code", "# privtab: ignore it"),
        ("ignore P999 why", "there is no finding `P999`", "P999"),
        ("ignore P101 why", "`P101` is an error: it cannot be ignored", "P101"),
        ("ignored P310 why", "unknown word `ignored`", "ignored"),
    ],
)
def test_a_comment_that_cannot_ignore(comment: str, message: str, under: str, only: Callable[..., Any]) -> None:
    found = only(f"tables: {{shop: {{open: READ (shop)}}}}  # privtab: {comment}\n", "P402")
    assert (found.message, found.under) == (message, under)


def test_an_ignore_without_a_reason_ignores_nothing(codes: Callable[[str], list[str]]) -> None:
    row = "tables: {shop: {open: READ (shop) or READ (shop) and WRITE (shop)}}  # privtab: ignore P310\n"
    assert {"P310", "P402"} <= set(codes(row))
