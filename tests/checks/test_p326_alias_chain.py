from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_alias_of_an_alias(only: Callable[..., Any]) -> None:
    found = only("privileges: {READ: , SEE: {alias_of: READ}, VIEW: {alias_of: SEE}}\n", "P326")
    assert found.message == "`VIEW` is an alias of the alias `SEE`"
    assert found.help == "name the privilege itself: `alias_of: READ`"
    assert found.under == "SEE"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    assert "P326" not in codes("privileges: {READ: , SEE: {alias_of: READ}, VIEW: {alias_of: READ}}\n")
