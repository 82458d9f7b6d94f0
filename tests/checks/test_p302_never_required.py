from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_dead_privilege(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: [READ, WRITE]
        tables: {shop: {open: READ (shop)}}
        """,
        "P302",
    )
    assert found.message == "no row requires `WRITE`"
    assert found.help == "granting it changes nothing: add rows that require it, or drop it"
    assert found.under == "WRITE"


def test_no_finding_required_through_an_alias_or_a_set(codes: Callable[[str], list[str]]) -> None:
    assert "P302" not in codes("""\
        privileges: {READ: , WRITE: , VIEW: {alias_of: READ}}
        sets: {SOME: [WRITE]}
        tables: {shop: {open: VIEW (shop), close: SOME (shop)}}
        """)


def test_no_finding_required_in_a_reading_or_a_variant(codes: Callable[[str], list[str]]) -> None:
    assert "P302" not in codes("""\
        tables: {shop: {open: {requires: anyone, ambiguous: {readings: {strict: READ (shop)}}}}}
        variants: {old: {tables: {shop: {open: WRITE (shop)}}}}
        """)
