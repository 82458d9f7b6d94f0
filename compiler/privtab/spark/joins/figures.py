"""How large things are: what joins decide by whether a side is broadcast."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLimits:
    """Up to where sides are sent to every executor instead of being shuffled."""

    broadcast: int = 64 << 20
    """Bytes of one side."""
    keep: Literal["checkpoint", "persist"] = "checkpoint"
    """How what is derived from a state is kept. A local checkpoint is quicker; where executors come and go, `persist` lets
    Spark make anew what was lost with one, where a checkpoint would make the job fail."""

    pin: bool = False
    """Read the rows once, into a local checkpoint. For rows that are others each time they are read: joins read them several times,
    and Spark cannot tell a random function that is not declared as such (`asNondeterministic`)."""

    def __post_init__(self) -> None:
        if self.keep not in ("checkpoint", "persist"):
            raise UsageError(f"keep is {self.keep!r}: it is `checkpoint` or `persist`")

    def broadcasts(self, rows: int | None, width: int) -> bool:
        """Whether so many rows of so many bytes may be; None: nobody knows how many there are."""
        return rows is not None and rows * width <= self.broadcast


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is known about the rows of a DataFrame."""

    rows: int | None = None
    requests: int | None = None
    """About how many different requests there are among them."""
    pairs: Mapping[str, int] = field(default_factory=dict)
    """By part of a request: about how many different things are asked."""

    def of(self, part: str) -> int | None:
        """With a margin, since the count is rough."""
        known = self.pairs.get(part)
        return None if known is None else known + known // 4

    @property
    def repeated(self) -> bool:
        """Whether requests come so often that it pays to decide each once and to join the answers."""
        return self.rows is not None and self.requests is not None and self.requests * 4 <= self.rows


def measured(rows: DataFrame, requests: Sequence[str], parts: Mapping[str, Sequence[str]]) -> Figures:
    """Count roughly, in one pass. `parts`: by part, the columns of which none is null where the part is asked."""
    counts = [
        F.approx_count_distinct(F.when(reduce(operator.and_, map(F.isnotnull, columns)), F.xxhash64(*columns)))
        for columns in parts.values()
    ]
    if requests:
        counts.append(F.approx_count_distinct(F.xxhash64(*requests)))
    every, *found = rows.agg(F.count(F.lit(1)), *counts).collect()[0]
    return Figures(rows=every, requests=found[-1] if requests else None, pairs=dict(zip(parts, found, strict=False)))
