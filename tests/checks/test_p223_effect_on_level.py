from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("target", ["parent", "any shelf", "first shelf", "every shelf"])
def test_an_effect_on_a_level(target: str, only: Callable[..., Any]) -> None:
    row = f"{{requires: READ (shop), grants: 'WRITE ({target})'}}"
    found = only(f"types: {{shelf: {{nested: true}}}}\ntables:\n  shelf: {{fill: {row}}}\n", "P223")
    assert found.message == f"an effect changes one entity of a known type, and `{target}` is not one"
    assert found.under == target


def test_an_effect_on_the_nearest(codes: Callable[[str], list[str]]) -> None:
    row = "{requires: READ (shop), grants: WRITE (shelf)}"
    assert "P223" not in codes(f"types: {{shelf: {{nested: true}}}}\ntables:\n  item: {{fill: {row}}}\n")
