from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROW = "{requires: WRITE (shop), grants: READ (shop)}"


def test_what_a_user_cannot_have(only: Callable[..., Any]) -> None:
    text = f"semantics: {{grantees: [role, group]}}\ntables: {{shop: {{create: {ROW}}}}}\n"
    found = only(text, "P345")
    assert found.message == "`create` gives the caller `READ` of the `shop`, which a user cannot have"
    assert found.under == "READ"
    assert found.help is not None
    assert found.help.endswith("lists `role` and `group`")


@pytest.mark.parametrize("semantics", ["grantees: [user]", "assignees: [group]"])
def test_no_finding(codes: Callable[[str], list[str]], semantics: str) -> None:
    assert "P345" not in codes(f"semantics: {{{semantics}}}\ntables: {{shop: {{create: {ROW}}}}}\n")
