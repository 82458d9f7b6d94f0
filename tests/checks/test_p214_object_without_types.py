from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_privileges_that_never_meet(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {on: [shop]}, WRITE: {on: [shelf]}}
        tables: {shop: {link: {with: {other: any}, requires: READ + WRITE (other)}}}
        """,
        "P214",
    )
    assert found.message == "no entity type fits the object `other`"
    assert (
        found.help
        == "for every `can OP` a type needs a row, for every privilege it must be a type that it can be granted on"
    )
    assert found.under == "any"
