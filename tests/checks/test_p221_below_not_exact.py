from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("text", "message", "under"),
    [
        (
            "tables: {shelf: {look: can look (shop or below)}, shop: {look: READ (shop)}}",
            "`can` has no `or below`",
            "shop",
        ),
        ("tables: {shop: {look: member (shop or below)}}", "`member` has no `or below`", "shop"),
        (
            "tables: {shop: {make: {requires: READ (shop), grants: READ (shop or below)}}}",
            "an effect has no `or below`",
            "shop",
        ),
        ("tables: {item: {look: READ (item or below)}}", "nothing below a `item` can hold `READ`", "READ"),
        (
            "roles: {keeper: {grants: {shelf: [READ]}}}\ntables: {shop: {look: READ (shop or below)}}",
            "the role `keeper` gives `READ` by default, also on entities that no row names",
            "READ",
        ),
    ],
)
def test_undecided_questions_are_findings(only: Callable[..., Any], text: str, message: str, under: str) -> None:
    found = only(text + "\n", "P221")
    assert found.message == message
    assert found.under == under


@pytest.mark.parametrize(
    "condition", ["READ (shop or below)", "READ/WRITE (shelf or below, item)", "owner (shop or below)"]
)
def test_no_finding(codes: Callable[[str], list[str]], condition: str) -> None:
    text = "semantics: {owner: {kinds: [user]}}\ntables: {item: {look: " + f"'{condition}'" + "}}\n"
    assert "P221" not in codes(text)
