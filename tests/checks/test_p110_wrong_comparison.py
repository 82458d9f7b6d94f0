from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DECLARED = """\
attributes:
  user:
    department: {text: true, from: request}
    rank: {integer: [0, 9], from: request}
    badges: {set: [red, blue], from: request}
  entity:
    class: {enum: [public, internal], from: request}
    color: {enum: [blue, gray], from: request}
  request: {mfa: bool}
"""


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("user.department = entity.class", "`user.department` is text, `entity.class` is one of `public`, `internal`"),
        (
            "entity.class = entity.color",
            "`entity.class` is one of `public`, `internal`, `entity.color` is one of `blue`, `gray`",
        ),
        (
            "entity.class in user.badges",
            "`entity.class` is one of `public`, `internal`, `user.badges` is a list of `red`, `blue`",
        ),
        ("entity.class = pubic", "`entity.class` is never `pubic`"),
        ("user.rank = 10", "`user.rank` is never `10`"),
        ("user.rank in {1, high}", "`user.rank` is never `high`"),
        ("request.mfa = 1", "`request.mfa` is never `1`"),
        ("user.department < x", "`user.department` is text, which has no `<`"),
        ("user.badges = red", "`user.badges` is a list of `red`, `blue`, which has no `=`"),
        ("user.rank", "`user.rank` is a whole number from 0 to 9, so it does not stand alone"),
    ],
)
def test_values_that_do_not_compare(only: Callable[..., Any], condition: str, message: str) -> None:
    assert only(f"{DECLARED}tables: {{item: {{look: '{condition}'}}}}\n", "P110").message == message


@pytest.mark.parametrize(
    "condition",
    ["entity.color in user.badges", "user.rank >= 3", "user.rank in {1, 2}", "request.mfa", "request.mfa = false"],
)
def test_no_finding(codes: Callable[[str], list[str]], condition: str) -> None:
    assert "P110" not in codes(f"{DECLARED}tables: {{item: {{look: 'READ (item) and {condition}'}}}}\n")
