from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_misspelt_word(only: Callable[..., Any]) -> None:
    found = only("semantics: {inheritance: dwon}\n", "P009")
    assert found.message == "`dwon` is not a value of `inheritance`"
    assert found.help == "did you mean `down`?"
    assert found.under == "dwon"


def test_another_format(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privtab: 2
        system: shop
        version: x
        entities: {shop: }
        """,
        "P009",
    )
    assert found.message == "unknown format 2"
    assert found.help == "this privtab reads format 1: `privtab: 1`"
    assert found.under == "2"


def test_effects_that_make_the_caller_something_impossible(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: {requires: READ (shop), becomes: boss}}}\n", "P009")
    assert found.message == "`boss` is not a value of `becomes`"
    assert found.help == "it is `owner` or `member`"
    assert found.under == "boss"


def test_granting_ownership(only: Callable[..., Any]) -> None:
    found = only(
        """\
        semantics: {owner: {creator: true}}
        tables: {shop: {open: {requires: READ (shop), grants: owner}}}
        """,
        "P009",
    )
    assert found.message == "`owner` cannot be granted"
    assert found.help == "write `becomes: owner`"
    assert found.under == "owner"


def test_revoking_a_privilege_named_as_a_table_of_the_state(only: Callable[..., Any]) -> None:
    found = only(
        """\
        privtab: 1
        system: shop
        version: x
        entities: {shop: }
        privileges: [READ, members]
        tables: {shop: {close: {requires: READ/members (shop), revokes: members}}}
        """,
        "P009",
    )
    assert found.message == "`members` is also a table of the state"
    assert found.help == "rename the privilege: decisions could not say which of the two they revoke"
    assert found.under == "members"


def test_a_flag_called_with(only: Callable[..., Any]) -> None:
    found = only("tables: {shop: {open: READ (shop) when with}}\n", "P009")
    assert found.message == "`with` cannot be a flag: the context holds the request's objects under this name"
    assert found.help == "choose another word"
    assert found.under == "with"


def test_a_source_that_is_no_line(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sources: {manual: {document: m.txt}}
        tables: {shop: {open: {requires: READ (shop), source: top}}}
        """,
        "P009",
    )
    assert found.message == "`top` is not a position in a source"
    assert found.help == "a line number, or `name:line`, as in `source: final:15`"
    assert found.under == "top"
