from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_self_of_a_shelf(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf) or self}}\n", "P210")
    assert found.message == "`self` asks for a user, but `shelf` is none"
    assert found.help == "say so: `types: {shelf: {principal: user}}`, if it is one"
    assert found.under == "self"


def test_a_shelf_that_one_holds(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf) or holds (shelf)}}\n", "P210")
    assert found.message == "`holds` asks for a role, but `shelf` is none"
    assert found.help == "say so: `types: {shelf: {principal: role}}`, if it is one"


def test_rows_about_a_shelf(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf), drop: {requires: READ (shelf), revokes: owners}}}\n", "P210")
    assert found.message == "`owners` are rows about a user, group or role, and `shelf` is none of them"
    assert found.help == "declare it: `types: {shelf: {principal: user}}`, or revoke `owner` or `member`"
    assert found.under == "owners"
