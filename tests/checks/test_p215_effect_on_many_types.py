from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_grant(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shop: {give: {with: {other: [shelf, item]}, requires: READ (shop), grants: READ (other)}}}
        """,
        "P215",
    )
    assert found.message == "an effect on `other` needs one type, and it may be `shelf` or `item`"
    assert found.help == "give the object one type in `with`"
    assert found.under == "other"
