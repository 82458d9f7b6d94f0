from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("text", "message", "under"),
    [
        ("tables: {shop: {GET: READ (shop)}, shelf: {get: WRITE (shelf)}}", "operations `GET` and `get`", "get"),
        ("privileges: [READ, Read]", "privileges `READ` and `Read`", "Read"),
        ("roles: {keeper: , Keeper: }", "roles `keeper` and `Keeper`", "Keeper"),
        (
            "attributes: {user: {ownerID: text}, entity: {ownerid: text}}",
            "attributes `ownerID` and `ownerid`",
            "ownerid",
        ),
        (
            "tables: {shop: {a: READ (shop) and (WRITE (shop) when dry), b: READ (shop) and (WRITE (shop) when Dry)}}",
            "flags `dry` and `Dry`",
            "when Dry",
        ),
    ],
)
def test_names(only: Callable[..., Any], text: str, message: str, under: str) -> None:
    found = only(f"{text}\n", "P344")
    assert found.message == f"the {message} differ in case alone"
    assert found.under == under


@pytest.mark.parametrize(
    "text",
    ["tables: {shop: {GET: READ (shop)}, shelf: {GET: WRITE (shelf)}}", "privileges: {READ: , Read: {alias_of: READ}}"],
)
def test_no_finding(codes: Callable[[str], list[str]], text: str) -> None:
    assert "P344" not in codes(f"{text}\n")
