"""Sizes and limits by which joins choose whether to broadcast a side."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLimits:
    """Settings of joins: when a side is broadcast instead of shuffled, and what is kept."""

    broadcast: int = 64 << 20
    """Most bytes of a side that is broadcast."""
    keep: Literal["checkpoint", "persist"] = "checkpoint"
    """How tables derived from a state are kept. A local checkpoint is faster; with `persist`, Spark can recompute what was lost
    with an executor, where a checkpoint would make the job fail (as with dynamic allocation)."""

    pin: bool = False
    """Read the rows once, into a local checkpoint. Needed for rows that differ each time they are read: joins read them several
    times, and Spark cannot detect a random function that is not declared as one (`asNondeterministic`)."""

    def __post_init__(self) -> None:
        if self.keep not in ("checkpoint", "persist"):
            raise UsageError(f"keep is {self.keep!r}: it is `checkpoint` or `persist`")

    def broadcasts(self, rows: int | None, width: int) -> bool:
        """Whether `rows` rows of `width` bytes may be broadcast; rows None: the number is unknown."""
        return rows is not None and rows * width <= self.broadcast


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Known figures of the rows of a DataFrame."""

    rows: int | None = None
    requests: int | None = None
    """Estimated number of distinct requests."""
    pairs: Mapping[str, int] = field(default_factory=dict)
    """By part of a request, the estimated number of distinct keys that are looked up."""

    def of(self, part: str) -> int | None:
        """The estimated number of distinct keys of a part, plus a margin for the error of the estimate."""
        known = self.pairs.get(part)
        return None if known is None else known + known // 4

    @property
    def repeated(self) -> bool:
        """Whether requests repeat often enough to decide each once and join the answers."""
        return self.rows is not None and self.requests is not None and self.requests * 4 <= self.rows


def measured(rows: DataFrame, requests: Sequence[str], parts: Mapping[str, Sequence[str]]) -> Figures:
    """Estimate the figures in one pass. `parts`: by part, its key columns; rows with a null in one of them do not count."""
    counts = [
        F.approx_count_distinct(F.when(reduce(operator.and_, map(F.isnotnull, columns)), F.xxhash64(*columns)))
        for columns in parts.values()
    ]
    if requests:
        counts.append(F.approx_count_distinct(F.xxhash64(*requests)))
    row_count, *found = rows.agg(F.count(F.lit(1)), *counts).collect()[0]
    return Figures(
        rows=row_count, requests=found[-1] if requests else None, pairs=dict(zip(parts, found, strict=False))
    )
