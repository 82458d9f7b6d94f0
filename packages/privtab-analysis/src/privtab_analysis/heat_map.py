"""Heat maps of reports."""

from __future__ import annotations

import math
from typing import Any

from privtab.base import dataclass

SHADES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Numbers by row and column. `sums`: of each row, with columns that are not shown; `left_out`: the numbers of rows and columns that are not shown."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]
    left_out: tuple[int, int]

    @property
    def most(self) -> int:
        """The largest cell."""
        return max((cell for row in self.cells for cell in row), default=0)

    def shaded(self) -> dict[str, Any]:
        """The heat map with a shade for each cell on a logarithmic scale, so that small and large counts are both visible."""
        most = math.log1p(self.most) or 1.0
        rows = [
            {
                "name": name,
                "sum": total,
                "cells": [
                    {
                        "count": count,
                        "shade": 0 if not count else max(1, math.ceil(math.log1p(count) / most * SHADES)),
                        "column": column,
                    }
                    for count, column in zip(cells, self.columns, strict=True)
                ],
            }
            for name, total, cells in zip(self.rows, self.sums, self.cells, strict=True)
        ]
        return {"name": self.name, "columns": self.columns, "rows": rows, "left_out": self.left_out}
