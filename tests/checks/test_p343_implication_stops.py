from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

TABLES = "tables: {shelf: {see: LIST (shelf), look: READ (shelf), fill: WRITE (shelf)}}\n"


def test_the_third_is_not_given(only: Callable[..., Any]) -> None:
    privileges = "privileges: {LIST: , READ: {implies: LIST}, WRITE: {implies: READ}}\n"
    found = only(privileges + TABLES, "P343")
    assert found.message == "`WRITE` implies `READ`, which implies `LIST`, but does not imply `LIST`"
    assert found.help == "implication is one step: add it to the list, if the document says so"
    assert found.under == "WRITE"


@pytest.mark.parametrize(
    "privileges",
    [
        "{LIST: , READ: {implies: LIST}, WRITE: {implies: [READ, LIST]}}",
        "{LIST: {implies: READ}, READ: {implies: LIST}, WRITE: }",
        "{LIST: {on: [shop]}, READ: {implies: LIST}, WRITE: {on: [shelf], implies: READ}}",
    ],
    ids=["given", "each other", "other types"],
)
def test_no_finding(codes: Callable[[str], list[str]], privileges: str) -> None:
    assert "P343" not in codes(f"privileges: {privileges}\n{TABLES}")
