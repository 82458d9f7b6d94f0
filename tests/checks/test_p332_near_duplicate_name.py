from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("set_option", "set_options"),
        ("list_items", "items_list"),
        ("update", "udpate"),
        ("delete", "delte"),
        ("publish", "pubiish"),
    ],
)
def test_operations(only: Callable[..., Any], first: str, second: str) -> None:
    found = only(f"tables: {{shop: {{{first}: READ (shop)}}, shelf: {{{second}: READ (shelf)}}}}\n", "P332")
    assert found.message == f"the operations `{first}` and `{second}` are easily confused"
    assert found.under == second


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("entities: {shop: {shelf: {shelfs:}}}", "types"),
        ("privileges: [READ, READS]", "privileges"),
        ("roles: {keeper: , keepers: }", "roles"),
        (
            "tables: {shop: {a: READ (shop) and (WRITE (shop) when strict), b: READ (shop) and (WRITE (shop) when stritc)}}",
            "flags",
        ),
    ],
)
def test_other_names(only: Callable[..., Any], text: str, kind: str) -> None:
    assert only(f"{text}\n", "P332").message.startswith(f"the {kind} `")


@pytest.mark.parametrize(
    "text",
    [
        "tables: {shop: {get_option: READ (shop), set_option: WRITE (shop)}}",
        "tables: {shop: {attach: READ (shop), detach: WRITE (shop), start: READ (shop), stop: READ (shop)}}",
        'tables: {shop: {"set_option, set_options": WRITE (shop)}}',
        "tables: {shop: {clean: {title: Clean it, requires: READ (shop)}, cleans: {title: Cleans, requires: READ (shop)}}}",
        (
            "sources: {wiki: w.txt}\n"
            "tables: {shop: {set_option: {requires: READ (shop), source: 1}, set_options: {requires: READ (shop), source: 2}}}"
        ),
        "privileges: {READ: , READS: {alias_of: READ}}",
        "entities: {shop: {shelf: {item:}, items:}}\ntypes: {items: {single: true}}",
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P332" not in codes(f"{text}\n")
