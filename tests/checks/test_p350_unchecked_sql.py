from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

FILTERS = """\
dialect: trino
types: {item: {row_filters: {mine: {requires: READ (item), sql: "a = = 1"}, other: {requires: WRITE (item), sql: "b"}}}}
tables: {item: {read: READ (item)}}
"""


def test_without_sqlglot_nothing_is_said_of_texts_but_that(
    only: Callable[..., Any], codes: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "P349" in codes(FILTERS)
    assert "P350" not in codes(FILTERS)
    for module in [name for name in sys.modules if name.partition(".")[0] == "sqlglot"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    found = only(FILTERS, "P350")
    assert found.message == "the SQL of filters was not parsed: SQLGlot is not installed"
    assert "[filter]" in found.help
