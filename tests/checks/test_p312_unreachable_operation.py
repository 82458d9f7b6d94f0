from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def test_a_type_to_which_the_condition_does_not_fit(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {on: [shelf]}, WRITE: {on: [shop]}}
        tables: {shelf: {attach: {with: {what: [shop, shelf]}, requires: READ (shelf) and WRITE (what)}}}
        """,
        "P312",
    )
    assert found.message == "no state allows `shelf/attach` where `what` is of the type `shelf`"
    assert found.help == "remove the type from `with`, or write what is required of it"
    assert found.under == "attach"


def test_no_type_fits(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {on: [shelf]}, WRITE: {on: [shop]}}
        tables: {shelf: {attach: {with: {what: [shop, shelf]}, requires: READ (what) and WRITE (what)}}}
        """,
        "P312",
    )
    assert found.message == "no state allows `shelf/attach`"


def test_a_listing_conditioned_on_the_listed_entity(only: Callable[..., Any]) -> None:
    found = only("tables: {shelf: {list: {requires: WRITE (shelf), each: READ (shelf)}}}\n", "P312")
    assert found.message == "no state allows `shelf/list` without a name"
    assert found.help is not None
    assert found.help.endswith("require something on its parent, or use `each`")


def test_only_with_a_flag(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privileges: {READ: {on: [shelf]}, WRITE: {on: [shop]}}
        tables:
          shelf:
            attach: {with: {what: [shop, shelf]}, requires: READ (shelf) and ((READ (what) and WRITE (what)) when both)}
        """,
        "P312",
    )
    assert found.message == "no state allows `shelf/attach` with the flag `both`"


@pytest.mark.parametrize(
    ("type_", "row"),
    [
        ("shelf", "READ (shelf)"),
        ("shelf", "can look (shop)"),
        ("user", "service admin and self"),
        ("shelf", "{requires: READ (shop), each: READ (shelf)}"),
        ("shelf", "{requires: WRITE (shop), grants: READ (shelf)}"),
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], type_: str, row: str) -> None:
    assert "P312" not in codes(f"tables: {{shop: {{look: WRITE (shop)}}, {type_}: {{open: {row}}}}}\n")


@pytest.mark.parametrize(
    "condition",
    [
        "shelf.color = red and shelf.color = blue",
        "user.rank > 3 and shelf.rank >= user.rank and shelf.rank < 4",
        "can lend (shelf) and shelf.color in {blue, gray}",
    ],
)
def test_comparisons_that_no_values_satisfy(only: Callable[..., Any], condition: str) -> None:
    attributes = """\
        attributes:
          user: {rank: {integer: [0, 9]}}
          entity: {color: {enum: [red, blue, gray]}, rank: {integer: [0, 9]}}
    """
    found = only(
        attributes + f"    tables: {{shelf: {{look: '{condition}', lend: shelf.color = red and READ (shelf)}}}}\n",
        "P312",
    )
    assert found.message == "no state allows `shelf/look`"


def test_an_entity_of_a_single_type_is_always_named(codes: Callable[[str], list[str]]) -> None:
    row = "{requires: READ (rules), each: WRITE (rules)}"
    policy = (
        f"entities: {{shop: {{rules: }}}}\ntypes: {{rules: {{single: true}}}}\ntables: {{rules: {{list: {row}}}}}\n"
    )
    assert "P312" not in codes(policy)


def test_nobody_alone_is_meant(codes: Callable[[str], list[str]]) -> None:
    assert "P312" not in codes("tables: {shelf: {shut: nobody}}\n")
    assert "P312" in codes("tables: {shelf: {shut: nobody and READ (shelf)}}\n")
