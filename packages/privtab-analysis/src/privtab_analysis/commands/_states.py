"""The options of `privtab diff` about states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from privtab.base import dataclass
from privtab.command import AtOption, option

MOST_LINES = 60
"""Default maximum of lines shown of a comparison of states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiffOptions:
    """Options for comparing states."""

    states: Annotated[
        list[Path] | None,
        option("--state -s STATE", "Compare this state with another one, which comes second: `-s OLD -s NEW`."),
    ] = None
    without: Annotated[
        list[str] | None,
        option(
            "--without ROW", "Compare the state with itself without this row, as a sentence or FILE:LINE; repeatable."
        ),
    ] = None
    limit: Annotated[
        int | None,
        option(
            "--limit N",
            f"Lines, or names in a JSON list, of states; 0 for all. (default: {MOST_LINES} lines, 1,000 names)",
            min=0,
        ),
    ] = None
    at: AtOption = None
