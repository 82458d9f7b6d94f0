"""The index of a state in which rows hold for a time (docs/decisions/0215).

    {"windowed": {"revision": …, the usual parts of what holds at any time …,
                  "windows": {the same parts, with the times in the place of `true` …}},
     "members": …, "service_admins": …, "within": …}

The parts that windows concern lie below `windowed`, where a policy or an engine that knows no windows looks for nothing: it finds
no state, instead of one whose denials it would overlook. Times are lists of `[from, until]` in nanoseconds, ascending and apart.
A principal that somebody has through two rows, such as a role of a group, has the times in which both hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from privtab.errors import UsageError
from privtab.moments import ALWAYS, Window, union

T = TypeVar("T")
Spans: TypeAlias = list[list[int]]
"""The times of one entry."""

MOST_WINDOWS = 1_000
"""Limit on the times of one entry: each look-up goes through them."""


def spans(windows: Iterable[Window]) -> Spans:
    """Windows as in the document. Raises UsageError if they are too many."""
    found = [list(window) for window in union(windows)]
    if len(found) > MOST_WINDOWS:
        message = f"somebody holds the same in {len(found):,} separate times; {MOST_WINDOWS:,} is the most"
        raise UsageError(message)
    return found


def spans_of(value: Any) -> Any:
    """Nested maps with lists of windows at the ends, with these as in the document; sorted."""
    if isinstance(value, Mapping):
        return {key: spans_of(value[key]) for key in sorted(value)}
    return spans(value)


def split(windows_of: Mapping[T, Iterable[Window]]) -> tuple[list[T], dict[T, Spans]]:
    """What holds at any time, and what holds for a time, with its times; both in the order of the map."""
    times = {value: spans(windows) for value, windows in windows_of.items()}
    always = [value for value, own in times.items() if own == [list(ALWAYS)]]
    return always, {value: own for value, own in times.items() if own and own != [list(ALWAYS)]}
