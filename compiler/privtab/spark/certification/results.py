"""The figures of a certification, whether counted by Spark (`figures`) or in this process (`local`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SIDE = 30
"""Most rows, and most columns, of a heat map."""
GROUPS = 2
"""Number of names of a path by which heat maps group entities."""
SIDES = ("principals", "ways", "operations", "entities")
PAIRS = tuple((row, column) for row in ("principals", "ways") for column in ("operations", "entities"))
"""The rows and the columns of each heat map."""
BARE = ("user", "path")
"""Columns whose cells begin with a name from the state; the others begin with a fixed word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a matrix."""

    entitlements: int
    principals: int
    entities: int
    operations: int
    destructive: int
    kinds: tuple[tuple[str, int], ...]
    """Number of entitlements by kind of source, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Numbers of entitlements by row and column. `left_out`: the numbers of rows and columns that are not shown."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    left_out: tuple[int, int]

    @property
    def most(self) -> int:
        """The largest cell."""
        return max((cell for row in self.cells for cell in row), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestructivePrincipal:
    """A principal with destructive operations: on how many entities, which operations, and through which principals."""

    principal: str
    entities: int
    operations: tuple[str, ...]
    through: tuple[str, ...]


class Rows(Protocol):
    """The written rows of a matrix."""

    def totals(self) -> Totals:
        """The totals of all rows."""

    def heat_maps(self) -> tuple[HeatMap, ...]:
        """Entitlements of principals, and through principals, by operation and by entity; only the largest rows and columns."""

    def first_rows(self, limit: int) -> list[dict[str, Any]]:
        """The rows that the page shows: destructive operations first, then by principal and entity."""

    def destroyers(self, most: int) -> tuple[list[DestructivePrincipal], int]:
        """The principals with destructive operations, those with the most rows first, at most `most`; and their total number."""

    def open_operations(self) -> list[tuple[str, int]]:
        """Operations that require nothing, each with the number of paths on which it is allowed."""

    def users(self) -> set[str]:
        """The users with at least one entitlement."""

    def write_csv(self, folder: Path) -> None:
        """Write the rows as CSV, escaped so that a spreadsheet does not read a cell as a formula."""


def assembled(
    shown: Mapping[str, Sequence[str]], omitted: Mapping[str, int], cells: Mapping[tuple[str, str, str], int]
) -> tuple[HeatMap, ...]:
    """Assemble heat maps from the chosen rows and columns. `omitted`: the number of those not chosen; `cells`: by map, row and column."""
    return tuple(
        HeatMap(
            name=f"{row} by {column}",
            rows=tuple(shown[row]),
            columns=tuple(shown[column]),
            cells=tuple(tuple(cells.get((f"{row} by {column}", r, c), 0) for c in shown[column]) for r in shown[row]),
            left_out=(omitted[row], omitted[column]),
        )
        for row, column in PAIRS
    )
