from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_in_one_term(only: Callable[..., Any]) -> None:
    found = only(
        """\
        semantics: {inheritance: down, deny: overrides}
        privileges: [READ]
        tables: {shelf: {look: 'READ (shop, shelf)'}}
        """,
        "P304",
    )
    assert found.message == "`READ` on the `shop` bypasses a denial on the `shelf`"
    assert found.help == "name the `shelf` alone: grants on the `shop` reach it by inheritance"
    assert found.under == "shop"


def test_in_two_alternatives(only: Callable[..., Any]) -> None:
    found = only(
        """\
        semantics: {inheritance: down, deny: overrides}
        privileges: [READ]
        tables: {shelf: {look: READ (shelf) or READ (shop)}}
        """,
        "P304",
    )
    assert found.message == "`READ` on the `shop` bypasses a denial on the `shelf`"
    assert found.help == "name the `shelf` alone: grants on the `shop` reach it by inheritance"
    assert found.under == "shop"


def test_no_finding_both_required(codes: Callable[[str], list[str]]) -> None:
    assert "P304" not in codes("""\
        semantics: {inheritance: down, deny: overrides}
        privileges: [READ]
        tables: {shelf: {look: READ (shelf) and READ (shop)}}
        """)


def test_no_finding_without_denials(codes: Callable[[str], list[str]]) -> None:
    assert "P304" not in codes("""\
        semantics: {inheritance: down}
        privileges: [READ]
        tables: {shelf: {look: 'READ (shop, shelf)'}}
        """)
