from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_in_a_condition(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , WRITE: {on: [shop, item]}}
        tables: {shelf: {look: READ/WRITE (shelf)}}
        """,
        "P206",
    )
    assert found.message == "`WRITE` cannot be granted on `shelf`"
    assert found.help == "`WRITE` can be granted on `shop` and `item`"
    assert found.under == "WRITE"


def test_through_a_set(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , WRITE: {on: [shop]}}
        sets: {ALL: [READ, WRITE]}
        tables: {shelf: {create: {requires: WRITE (shop), grants: ALL (shelf)}}}
        """,
        "P206",
    )
    assert found.message == "`WRITE` of `ALL` cannot be granted on `shelf`"
    assert found.help == "`WRITE` can be granted on `shop`"
    assert found.under == "ALL"


def test_in_a_role(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , WRITE: {on: [shop]}}
        roles: {boss: {grants: {shelf: [READ, WRITE]}}}
        """,
        "P206",
    )
    assert found.message == "`WRITE` cannot be granted on `shelf`"
    assert found.help == "`WRITE` can be granted on `shop`"
    assert found.under == "WRITE"


def test_on_an_object_of_several_types(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , WRITE: {on: [shop]}}
        tables: {shop: {link: {with: {other: [shelf, item]}, requires: WRITE (other)}}}
        """,
        "P206",
    )
    assert found.message == "`WRITE` cannot be granted on `shelf` or `item`"
    assert found.help == "`WRITE` can be granted on `shop`"
    assert found.under == "WRITE"
