from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_syntax_errors_describe_what_was_expected(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ shop}}\n", "P011")
    assert found.message == "unexpected `shop`"
    assert found.help == "write the entity type in parentheses: `READ (shop)`"
    assert found.under == "shop"


def test_a_cell_that_ends_too_early(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop) and}}\n", "P011")
    assert found.message == "the cell ends too early"
    assert found.help == "expected a condition such as `READ (table)`, `owner (…)`, `can OP (…)`"


def test_slash_and_plus_in_one_term(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ/WRITE + READ (shop)}}\n", "P011")
    assert found.message == "unexpected `+`"
    assert (
        found.help
        == "expected `(` or `/`; `/` (any of) and `+` (all of) do not mix in one term: write two terms with `and` or `or`"
    )
    assert found.under == "+"


def test_a_comma_inside_braces(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop, shelf)}}}\n", "P011")
    assert found.message == "this comma ends the cell, inside `{ }` or `[ ]`"
    assert found.help == "put the cell in quotes"
    assert found.under == ","


def test_a_strange_character(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: READ?WRITE (shop)
        """,
        "P011",
    )
    assert found.message == "unexpected character `?`"
    assert found.help == "expected `(`, `/` or `+`; a character lost from the document, most likely `/`"
    assert found.under == "?"


def test_the_caret_finds_its_way_into_quotes(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: 'READ (shop) xor WRITE (shop)'
        """,
        "P011",
    )
    assert found.message == "unexpected `xor`"
    assert found.help == "expected `and`, `or`, `when` or the end of the cell"
    assert found.under == "xor"


def test_the_caret_finds_its_way_into_folded_text(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shop:
            open: >-
              READ (shop)
              or WRITE (shop
              or READ (shop)
        """,
        "P011",
    )
    assert found.message == "unexpected `or`"
    assert found.help == "expected `)`, `,` or `or below`"
    assert found.under == "or"


def test_an_effect(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), grants: READ/WRITE (shop)}}}\n", "P011")
    assert found.message == "unexpected `/`"
    assert found.help == "expected `(`, `+`, `and` or the end of the cell"
    assert found.under == "/"


def test_a_comma_inside_brackets(only: Callable[..., Any]) -> None:
    found = only(
        "tables: {shelf: {fill: {requires: READ (shop), grants: [READ (shop, shelf), WRITE (shelf)]}}}\n", "P011"
    )
    assert found.under == ","
    assert found.help == "put the cell in quotes"
