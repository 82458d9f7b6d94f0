from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_an_alias(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , VIEW: {alias_of: READ, deprecated: use READ}}
        tables: {shop: {open: VIEW (shop)}}
        """,
        "P301",
    )
    assert found.message == "`VIEW` is deprecated"
    assert found.help == "write `READ`, which means the same"
    assert found.under == "VIEW"


def test_a_privilege_in_a_row_for_many_types(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {deprecated: ask for PEEK}}
        core: {open: READ (entity)}
        """,
        "P301",
    )
    assert found.message == "`READ` is deprecated"
    assert found.help == "ask for PEEK"
    assert found.under == "READ"


def test_in_a_role(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: , VIEW: {alias_of: READ, deprecated: use READ}}
        tables: {shop: {open: READ (shop)}}
        roles: {boss: {grants: {shop: [VIEW]}}}
        """,
        "P301",
    )
    assert found.message == "`VIEW` is deprecated"
    assert found.help == "write `READ`, which means the same"
    assert found.under == "VIEW"


def test_no_finding_declared_and_not_used(codes: Callable[[str], list[str]]) -> None:
    assert "P301" not in codes("""\
        privileges: {READ: , VIEW: {alias_of: READ, deprecated: use READ}}
        tables: {shop: {open: READ (shop)}}
        """)
