"""How databases that filters are run in write parameters and columns that fold case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Run: TypeAlias = Callable[[str, Sequence[object]], Sequence[tuple[object, ...]]]
"""Runs a statement with parameters."""
MARKS = {"sqlite": "?", "duckdb": "?", "postgres": "%s", "mysql": "%s"}
FOLDED = {
    "sqlite": "TEXT COLLATE NOCASE",
    "duckdb": "TEXT COLLATE NOCASE",
    "postgres": "TEXT COLLATE folding",
    "mysql": "TEXT",
}
"""The type of columns whose collation folds case."""


def insert(run: Run, dialect: str, table: str, rows: Iterable[Sequence[object]], at_once: int = 100) -> None:
    """Add rows to a table, many in one statement."""
    listed = list(rows)
    for start in range(0, len(listed), at_once):
        part = listed[start : start + at_once]
        mark = f"({', '.join([MARKS[dialect]] * len(part[0]))})"
        text = f"INSERT INTO {table} VALUES {', '.join([mark] * len(part))}"  # noqa: S608  (tables of tests)
        run(text, [value for row in part for value in row])
