from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_privilege(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: [MODIFY, READ]
        tables: {shop: {open: MODIFIY (shop)}}
        """,
        "P101",
    )
    assert found.message == "unknown privilege `MODIFIY`"
    assert found.help == "did you mean `MODIFY`?"
    assert found.under == "MODIFIY"


def test_in_a_set(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sets: {ALL: [READ, REED]}
        tables: {shop: {open: ALL (shop)}}
        """,
        "P101",
    )
    assert found.message == "unknown privilege `REED`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REED"


def test_in_an_effect(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), grants: WRIT (shop)}}}\n", "P101")
    assert found.message == "unknown privilege `WRIT`"
    assert found.help == "did you mean `WRITE`?"
    assert found.under == "WRIT"


def test_in_a_role(only: Callable[..., Any]) -> None:
    found = only("roles: {boss: {grants: {shop: [READ, WRIET]}}}\n", "P101")
    assert found.message == "unknown privilege `WRIET`"
    assert found.help == "did you mean `WRITE`?"
    assert found.under == "WRIET"


def test_in_what_owners_hold(only: Callable[..., Any]) -> None:
    found = only("semantics: {owner: {holds: [REDA]}}\n", "P101")
    assert found.message == "unknown privilege `REDA`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REDA"


def test_in_a_reading_that_is_not_selected(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shop: {open: {requires: READ (shop), ambiguous: {readings: {other: REED (shop)}}}}}
        """,
        "P101",
    )
    assert found.message == "unknown privilege `REED`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REED"


def test_in_a_variant_that_is_not_selected(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables: {shop: {open: READ (shop)}}
        variants: {old: {tables: {shop: {open: REED (shop)}}}}
        """,
        "P101",
    )
    assert found.message == "unknown privilege `REED`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REED"


def test_in_a_core_row_once_for_all_types(only: Callable[..., Any]) -> None:
    found = only("core: {open: REED (entity)}\n", "P101")
    assert found.message == "unknown privilege `REED`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REED"


def test_in_a_core_row_that_holds_for_no_type(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: }
        core: {open: REED (parent)}
        """,
        "P101",
    )
    assert found.message == "unknown privilege `REED`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "REED"


def test_capitals_count(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: read (shop)}}\n", "P101")
    assert found.message == "unknown privilege `read`"
    assert found.help == "did you mean `READ`?"
    assert found.under == "read"


def test_a_name_unlike_all_others_lists_the_known_ones(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: FROBNICATE (shop)}}\n", "P101")
    assert found.message == "unknown privilege `FROBNICATE`"
    assert found.help == "the privileges and sets are `READ` and `WRITE`"
    assert found.under == "FROBNICATE"
