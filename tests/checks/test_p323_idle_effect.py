from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_effects_on_objects_of_the_request(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {fill: {requires: WRITE (shelf), grants: WRITE (shelf)}}}\n", "P323")
    assert found.message == "the row `fill` grants `WRITE` of the `shelf`, which the call already requires"
    assert found.help == "drop it, or check what it was meant to give"
    assert found.under == "WRITE"


def test_effects_that_no_row_requires(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {fill: {requires: WRITE (shelf), grants: READ (shelf)}}}\n", "P323")
    assert found.message == "the row `fill` grants `READ` of the `shelf`, which no row requires"


def test_ownership_that_means_nothing(only: Callable[..., Any]) -> None:
    found = only(
        "semantics: {owner: {kinds: [user]}}\ntables: {shelf: {fill: {requires: WRITE (shop), becomes: owner}}}\n",
        "P323",
    )
    assert found.message == "the row `fill` makes the caller `owner` of the `shelf`, which no row requires"
    assert found.under == "fill"


@pytest.mark.parametrize(
    "text",
    [
        "sets: {ALL: [READ, WRITE]}\ntables: {shelf: {fill: {requires: WRITE (shop), grants: ALL (shelf)}, look: READ (shelf)}}",
        (
            "semantics: {owner: {holds: READ}}\n"
            "tables: {shelf: {fill: {requires: WRITE (shop), becomes: owner}, look: READ (shelf)}}"
        ),
        (
            "semantics: {gate: member (shop)}\n"
            "tables: {shop: {join: {requires: anyone, gate: none, becomes: member}, look: READ (shop)}}"
        ),
        "tables: {shelf: {fill: {requires: WRITE (shelf), revokes: WRITE (shelf)}}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P323" not in codes(f"{text}\n")
