from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_self_of_a_shelf(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf) or self}}\n", "P210")
    assert found.message == "`self` requires a user, but `shelf` is not one"
    assert found.help == "if it is one, declare it: `types: {shelf: {principal: user}}`"
    assert found.under == "self"


def test_a_shelf_that_one_holds(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf) or holds (shelf)}}\n", "P210")
    assert found.message == "`holds` requires a role, but `shelf` is not one"
    assert found.help == "if it is one, declare it: `types: {shelf: {principal: role}}`"


def test_rows_about_a_shelf(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shelf), drop: {requires: READ (shelf), revokes: owners}}}\n", "P210")
    assert found.message == "`owners` are rows about a user, group or role, and `shelf` is none of them"
    assert found.help == "declare it: `types: {shelf: {principal: user}}`, or revoke `owner` or `member`"
    assert found.under == "owners"
