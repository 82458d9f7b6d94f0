from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("row", ["claim: {requires: anyone, ", "create: {requires: anyone, creates: false, "])
def test_a_grant_to_every_caller(only: Callable[..., Any], row: str) -> None:
    found = only(f"tables: {{shelf: {{{row}grants: WRITE (shelf)}}}}, item: {{fill: WRITE (shelf)}}}}\n", "P335")
    assert found.message.startswith("every caller gets `WRITE` of a `shelf` by `c")
    assert found.help == "require something that not every caller has"


def test_a_grant_on_an_ancestor(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {enter: {requires: anyone, grants: READ (shop)}}, shop: {look: READ (shop)}}\n", "P335"
    )
    assert found.message == "every caller gets `READ` of a `shop` by `enter`"


@pytest.mark.parametrize(
    "row",
    [
        "create: {requires: anyone, grants: WRITE (shelf)}",
        "claim: {requires: anyone, creates: true, grants: WRITE (shelf)}",
        "claim: {requires: READ (shop), grants: WRITE (shelf)}",
        "leave: {requires: anyone, creates: false, revokes: WRITE (shelf)}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], row: str) -> None:
    assert "P335" not in codes(f"tables: {{shelf: {{{row}}}}}\n")
