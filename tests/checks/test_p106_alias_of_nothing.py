from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_privilege(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , VIEW: {alias_of: REDA}}
        tables: {shop: {open: VIEW/READ (shop)}}
        """,
        "P106",
    )
    assert found.message == "`VIEW` is an alias of `REDA`, which is not a privilege"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REDA"


def test_a_set(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , VIEW: {alias_of: ALL}}
        sets: {ALL: [READ]}
        tables: {shop: {open: READ (shop)}}
        """,
        "P106",
    )
    assert found.message == "`VIEW` is an alias of `ALL`, which is not a privilege"
    assert found.help == "the privileges are `READ`"
    assert found.under == "ALL"
