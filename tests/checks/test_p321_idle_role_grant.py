from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_grant_on_the_wrong_type(only: Callable[..., Any]) -> None:
    found = only(
        "roles: {boss: {grants: {shop: [READ], shelf: [READ]}}}\ntables: {shelf: {look: READ (shelf)}}\n", "P321"
    )
    assert found.message == "no row requires `READ` on a `shop`"
    assert found.help == "drop it, or add rows that require it"
    assert found.under == "READ"


@pytest.mark.parametrize("grants", ["{shop: [READ]}", "{}"])
def test_a_role_that_gives_nothing(only: Callable[..., Any], grants: str) -> None:
    found = only(f"roles: {{boss: {{grants: {grants}}}}}\ntables: {{shelf: {{look: READ (shelf)}}}}\n", "P321")
    assert found.message == "the role `boss` grants nothing that a row requires"
    assert found.under == "boss"


@pytest.mark.parametrize(
    "text",
    [
        "semantics: {inheritance: down}\nroles: {boss: {grants: {shop: [READ]}}}",
        "sets: {ALL: [READ, WRITE]}\nroles: {boss: {grants: {shelf: [ALL]}}}",
        "privileges: {READ: , WRITE: , VIEW: {alias_of: READ}}\nroles: {boss: {grants: {shelf: [VIEW]}}}",
        (
            "roles: {boss: {grants: {shop: [READ]}}}\nvariants: {old: {tables: {shop: {look: READ (shop)}}}}\n"
            "any: {see: READ (entity)}"
        ),
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P321" not in codes(f"{text}\ntables: {{shelf: {{look: READ (shelf)}}}}\n")
