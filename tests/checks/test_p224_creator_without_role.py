from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROW = "tables: {shelf: {create: WRITE (shop), fill: WRITE (shelf)}}\n"


@pytest.mark.parametrize(
    ("semantics", "message", "advice"),
    [
        (
            "active_roles: request, owner: {kinds: [user, group], creator: active_role}",
            "`creator: active_role` makes a role the owner, and a state refuses it: `kinds` has user and group",
            "add `role` to `kinds`",
        ),
        (
            "owner: {kinds: [role], creator: active_role}",
            "`creator: active_role` makes an active role the owner, and no request can name one",
            "let requests name them: `semantics: {active_roles: request}`",
        ),
    ],
)
def test_what_is_missing(semantics: str, message: str, advice: str, only: Callable[..., Any]) -> None:
    found = only(f"semantics: {{{semantics}}}\n{ROW}", "P224")
    assert (found.message, found.help, found.under) == (message, advice, "active_role")


@pytest.mark.parametrize("roles", ["request", "request_grants"])
def test_a_role_that_may_own(roles: str, codes: Callable[[str], list[str]]) -> None:
    found = codes(f"semantics: {{active_roles: {roles}, owner: {{kinds: [role], creator: active_role}}}}\n{ROW}")
    assert not {"P224", "P346"}.intersection(found)


def test_another_word(only: Callable[..., Any]) -> None:
    found = only("semantics: {owner: {creator: role}}\n" + ROW, "P008")
    assert found.message == "`creator` must be `true`, `false` or `active_role`, not text"
