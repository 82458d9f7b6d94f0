"""From which size of the state and of the requests on joins decide."""

from __future__ import annotations

from dataclasses import dataclass, field

from privtab.spark.joins.figures import Figures, JoinLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits beyond which joins decide, and settings of the joins."""

    rows: int = 5_000_000
    """Most rows of a state that are collected on the driver, which builds the arrays (about 150,000 rows a second)."""
    size: int = 1 << 30
    """Most bytes of the arrays; every executor holds them once for all its tasks."""
    large: int = 1_000_000
    """Rows of a state above which requests are counted first: building the arrays does not pay off for a few requests."""
    few: int = 50_000
    """Most distinct requests that count as few for such a state."""
    joins: JoinLimits = field(default_factory=JoinLimits)
    """What joins broadcast, and how they cache what they derive from the state."""
    figures: Figures | None = None
    """Known figures of the rows; without them, joins first estimate the figures by a count."""
