from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROW = "tables: {shelf: {create: WRITE (shop), fill: WRITE (shelf)}}\n"


def test_a_creator_who_may_not_own(only: Callable[..., Any]) -> None:
    found = only("semantics: {owner: {kinds: [role], creator: true}}\n" + ROW, "P346")
    assert found.message == (
        "`create` makes its caller the owner by `creator: true`, and a state refuses a user as an owner: `kinds` has role"
    )
    assert found.under == "create"


def test_a_row_that_says_so_itself(only: Callable[..., Any]) -> None:
    text = "semantics: {owner: {kinds: [group, role]}}\ntables: {shelf: {take: {requires: WRITE (shelf), becomes: owner}}}\n"
    assert "`kinds` has group or role" in only(text, "P346").message


@pytest.mark.parametrize("semantics", ["owner: {creator: true}", "owner: {kinds: [user, role], creator: true}"])
def test_no_finding(codes: Callable[[str], list[str]], semantics: str) -> None:
    assert "P346" not in codes(f"semantics: {{{semantics}}}\n{ROW}")
