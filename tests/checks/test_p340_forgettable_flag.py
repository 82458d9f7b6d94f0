from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_flag_missing_from_the_row(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop) and (WRITE (shop) when private)}}\n", "P340")
    assert found.message == "a request without the flag `private` has fewer requirements"
    assert found.help == "make every request state it: `flags: {private: required}`; or `optional`, if that is intended"
    assert found.under == "when private"


def test_one_finding_for_each_flag_of_a_row(codes: Callable[[str], list[str]]) -> None:
    text = """\
        any:
          open:
            requires: READ (entity) and (WRITE (entity) when a) and (WRITE (shop) when b) and (WRITE (shop) when a)
            flags: {b: required}
        """
    assert codes(text).count("P340") == 1


@pytest.mark.parametrize("saying", ["required", "optional"])
def test_a_flag_used_by_the_row(codes: Callable[[str], list[str]], saying: str) -> None:
    row = f"{{requires: READ (shop) and (WRITE (shop) when private), flags: {{private: {saying}}}}}"
    assert "P340" not in codes(f"tables: {{shop: {{open: {row}}}}}\n")
