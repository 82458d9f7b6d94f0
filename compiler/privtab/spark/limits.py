"""From which size of the state and of the requests on a state is divided into portions."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL = 20_000_000
"""Most rows of a state that one process holds, the driver or a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits beyond which a state is divided into portions, and how requests are read for that."""

    rows: int = 7_000_000
    """Most rows of a state that are collected on the driver, which builds the arrays (about 100,000 rows a second); tried with Spark's default memory."""
    size: int = 1 << 30
    """Most bytes of the arrays; every executor holds them once for all its tasks."""
    large: int = 1_000_000
    """Rows of a state above which requests are counted first: building the arrays does not pay off for a few requests."""
    few: int = 50_000
    """Most distinct requests that count as few for such a state."""
    pin: bool = False
    """Read the rows once, into a local checkpoint. Needed for rows that differ each time they are read: they are read twice, and
    Spark cannot detect a random function that is not declared as one (`asNondeterministic`)."""
