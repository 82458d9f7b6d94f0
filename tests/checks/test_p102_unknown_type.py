from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_table(only: Callable[..., Any]) -> None:
    found = only("tables: {shlef: {fill: READ (shelf)}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_a_table_whose_rows_others_require_by_can(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shlef: {load: READ (shelf)}
          item: {load: can load (shelf)}
        """,
        "P102",
    )
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_types_that_a_privilege_binds_to(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {on: [shop, shlef]}}
        tables: {shelf: {look: READ (shelf)}}
        """,
        "P102",
    )
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_a_target(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {look: READ (shlef)}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_an_object(only: Callable[..., Any]) -> None:
    found = only("tables: {item: {move: {with: {to: shlef}, requires: READ (to)}}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_for_types_of_any(only: Callable[..., Any]) -> None:
    found = only("any: {look: {for: [shop, shlef], requires: READ (shop)}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_types(only: Callable[..., Any]) -> None:
    found = only("types: {shlef: {single: true}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"


def test_a_role_s_scope(only: Callable[..., Any]) -> None:
    found = only("roles: {boss: {scope: shlef, grants: {item: [READ]}}}\n", "P102")
    assert found.message == "unknown entity type `shlef`"
    assert found.help == "did you mean `shelf`?"
    assert found.under == "shlef"
