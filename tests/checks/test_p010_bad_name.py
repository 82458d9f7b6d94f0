from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_an_operation(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {Open-All: READ/WRITE (shop)}}\n", "P010")
    assert found.message == "`Open-All` cannot be the name of an operation"
    assert found.help == "names begin with a letter; then come letters, digits and `_`: `Open_All`"
    assert found.under == "Open-All"


def test_an_entity_type_makes_no_further_findings(only: Callable[..., Any]) -> None:
    found = only(
        """\
        entities: {shop: {Shelf: }}
        tables: {Shelf: {open: READ (Shelf)}}
        """,
        "P010",
    )
    assert found.message == "`Shelf` cannot be the name of an entity type"
    assert found.help == "names begin with a letter; then come small letters, digits and `_`: `shelf`"
    assert found.under == "Shelf"


def test_a_privilege_called_like_a_word_of_conditions(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: [READ, owner]
        tables: {shop: {open: READ (shop)}}
        """,
        "P010",
    )
    assert found.message == "`owner` cannot be the name of a privilege"
    assert found.help == "`owner` is a word of conditions"
    assert found.under == "owner"


def test_a_type_called_parent(only: Callable[..., Any]) -> None:
    found = only("entities: {shop: {parent: }}\n", "P010")
    assert found.message == "`parent` cannot be the name of an entity type"
    assert found.help == "`parent` has a meaning of its own in conditions"
    assert found.under == "parent"


@pytest.mark.parametrize(
    ("key", "meant"), [("start/stop", "start, stop"), ("Start | Stop-All/debug", "Start, Stop_All, debug")]
)
def test_several_operations_without_commas(only: Callable[..., Any], key: str, meant: str) -> None:
    found = only(
        f"tables: {{shop: {{{key}: READ/WRITE (shop), run: can {'Stop_All' if 'All' in key else 'stop'} (shop)}}}}\n",
        "P010",
    )
    assert found.message == f"`{key}` cannot be the name of an operation"
    assert found.help == f"one row for several operations has commas between them: `{meant}`"
    assert found.under == key


def test_a_mark_alone_makes_no_two_operations(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {start/: READ/WRITE (shop)}}\n", "P010")
    assert found.help == "names begin with a letter; then come letters, digits and `_`: `start`"


@pytest.mark.parametrize(
    "text",
    [
        "tables: {shop: {GET: READ (shop), SelectFromColumns: can GET (shop)}}",
        "tables: {shop: {open: READ (shop) and (WRITE (shop) when dryRun)}}",
        "attributes: {entity: {ownerID: text}, user: {Email: text}}\ntables: {shop: {open: READ/WRITE (shop) and user.Email = entity.ownerID}}",
    ],
)
def test_what_requests_name_has_letters_of_both_cases(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P010" not in codes(f"{text}\n")
