from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("flags", "under", "help_"),
    [
        ("{privat: required}", "privat", "did you mean `private`?"),
        ("{loud: optional}", "loud", "the row uses `private`"),
    ],
)
def test_a_flag_unused_by_the_row(only: Callable[..., Any], flags: str, under: str, help_: str) -> None:
    row = f"{{requires: READ (shop) and (WRITE (shop) when private), flags: {flags}}}"
    found = only(f"tables: {{shop: {{open: {row}}}}}\n", "P108")
    assert found.message == f"no condition of the row `open` uses the flag `{under}`"
    assert found.under == under
    assert found.help == help_


def test_a_row_without_flags(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), flags: {private: required}}}}\n", "P108")
    assert found.help == "write `CONDITION when FLAG`, or drop it"


def test_flags_used_through_can_and_by_the_gate_are_known(codes: Callable[[str], list[str]]) -> None:
    text = """\
        semantics: {gate: READ (shop) when late}
        tables:
          shop:
            open: {requires: READ (shop) and (WRITE (shop) when private), flags: {private: optional}}
            close: {requires: can open (shop), flags: {private: required, late: required}}
        """
    assert "P108" not in codes(text)
