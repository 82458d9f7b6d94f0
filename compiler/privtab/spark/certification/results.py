"""What a certification says of a matrix in numbers, whoever counts them: Spark (`figures`) or this process (`local`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SIDE = 30
"""Rows and columns of a heat map at the most."""
GROUPS = 2
"""Names of a path by which entities are put together in a heat map."""
SIDES = ("principals", "ways", "operations", "entities")
PAIRS = tuple((row, column) for row in ("principals", "ways") for column in ("operations", "entities"))
"""The rows and the columns of each heat map."""
BARE = ("user", "path")
"""Columns whose cells begin with a name; the others begin with a word of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much there is."""

    entitlements: int
    principals: int
    entities: int
    operations: int
    destructive: int
    kinds: tuple[tuple[str, int], ...]
    """By what they rest on, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Entitlements by row and column. `left_out`: how many rows and columns there are beside those shown."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    left_out: tuple[int, int]

    @property
    def most(self) -> int:
        """The greatest cell."""
        return max((cell for row in self.cells for cell in row), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroyer:
    """Who may destroy something: how many entities, by which operations, and through whom."""

    principal: str
    entities: int
    operations: tuple[str, ...]
    through: tuple[str, ...]


class Rows(Protocol):
    """The written rows of a matrix."""

    def totals(self) -> Totals:
        """All of it, counted."""

    def heat_maps(self) -> tuple[HeatMap, ...]:
        """Who holds, and through whom, by operation and by entity: the fullest rows and columns."""

    def first_rows(self, limit: int) -> list[dict[str, Any]]:
        """The rows that a page shows: what destroys first, then by principal and entity."""

    def destroyers(self, most: int) -> tuple[list[Destroyer], int]:
        """Who may destroy something, the most rows first; and how many there are."""

    def open_operations(self) -> list[tuple[str, int]]:
        """Operations that ask for nothing, each with how many paths it is open on."""

    def users(self) -> set[str]:
        """Those who may do something."""

    def write_csv(self, folder: Path) -> None:
        """The rows as CSV, no cell of which a spreadsheet takes for a formula."""


def assembled(
    chosen: Mapping[str, Sequence[str]], beside: Mapping[str, int], cells: Mapping[tuple[str, str, str], int]
) -> tuple[HeatMap, ...]:
    """The heat maps of some rows and columns. `cells`: by map, row and column."""
    return tuple(
        HeatMap(
            name=f"{row} by {column}",
            rows=tuple(chosen[row]),
            columns=tuple(chosen[column]),
            cells=tuple(tuple(cells.get((f"{row} by {column}", r, c), 0) for c in chosen[column]) for r in chosen[row]),
            left_out=(beside[row], beside[column]),
        )
        for row, column in PAIRS
    )
