from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("semantics", "row", "gives", "lists", "under"),
    [
        (
            "grantees: [role, group]",
            "requires: WRITE (shop), grants: READ (shop)",
            "READ",
            "`role` and `group`",
            "READ",
        ),
        ("owner: {kinds: [role]}", "requires: READ/WRITE (shop), becomes: owner", "owner", "`role`", "create"),
        (
            "owner: {kinds: [role], creator: true}",
            "requires: service admin",
            "owner",
            "`role`",
            "create",
        ),
    ],
)
def test_what_a_user_cannot_have(
    find: Callable[..., Any], semantics: str, row: str, gives: str, lists: str, under: str
) -> None:
    text = f"semantics: {{{semantics}}}\ntables: {{shop: {{create: {{{row}}}}}}}\n"
    [found] = [finding for finding in find(text) if finding.code == "P345"]
    assert found.message == f"`create` gives the caller `{gives}` of the `shop`, which a user cannot have"
    assert found.help is not None
    assert found.help.endswith(f"lists {lists}")


@pytest.mark.parametrize(
    "semantics", ["grantees: [user]", "assignees: [group]", "owner: {kinds: [user], creator: true}"]
)
def test_no_finding(codes: Callable[[str], list[str]], semantics: str) -> None:
    row = "{requires: WRITE (shop), grants: READ (shop)}"
    assert "P345" not in codes(f"semantics: {{{semantics}}}\ntables: {{shop: {{create: {row}}}}}\n")
