from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_child_of_what_is_created(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shelf: {create: {requires: WRITE (shop), grants: READ + WRITE (shelf)}, look: READ (shelf)}
          item: {look: READ (item), sell: WRITE (item)}
        """,
        "P305",
    )
    assert found.message == "no row ever grants `READ` and `WRITE` on the type `item`"
    assert found.help == "only an administrator can give it, unless a row that creates the `item` grants it"
    assert found.under == "READ"


def test_no_finding_no_row_grants_anything(codes: Callable[[str], list[str]]) -> None:
    assert "P305" not in codes("tables: {shop: {open: READ (shop), close: WRITE (shop)}}\n")


def test_no_finding_a_role_gives_it(codes: Callable[[str], list[str]]) -> None:
    assert "P305" not in codes("""\
        roles: {boss: {grants: {item: [READ]}}}
        tables:
          shelf: {create: {requires: WRITE (shop), grants: READ + WRITE (shelf)}}
          item: {look: READ (item)}
        """)


def test_no_finding_owners_hold_it(codes: Callable[[str], list[str]]) -> None:
    assert "P305" not in codes("tables: {shop: {open: READ (shop), close: WRITE (shop)}}\n")
