from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("cell", ["WRITE (shelf)", "WRITE (shop) and READ (shelf)", "can look (shelf)"])
def test_a_new_entity_has_no_grants_yet(only: Callable[..., Any], cell: str) -> None:
    found = only(f"tables: {{shelf: {{create: {cell}, look: READ (shelf)}}}}\n", "P334")
    assert found.message == "creating a `shelf` requires something on the `shelf`, which does not exist yet"
    assert found.help == "require it on its parent, or write `creates: false` if it already exists"
    assert found.under == "create"


@pytest.mark.parametrize(
    "row",
    [
        "WRITE (shop)",
        "WRITE (shop) or WRITE (shelf)",
        "{requires: WRITE (shelf), creates: false}",
        "{requires: WRITE (shelf), ambiguous: {why: Icons., readings: {above: WRITE (shop)}}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], row: str) -> None:
    assert "P334" not in codes(f"tables: {{shelf: {{create: {row}}}}}\n")
