from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_one_object(only: Callable[..., Any]) -> None:
    found = only(
        """\
        tables:
          shelf:
            fill: {with: {article: item}, requires: READ (article)}
            close: can fill (shelf)
        """,
        "P209",
    )
    assert found.message == "`can fill` on `shelf` needs `article`, which `can` cannot name"
    assert found.help == "a row with `with` objects cannot be reached by `can`: write its condition out"
    assert found.under == "fill"
