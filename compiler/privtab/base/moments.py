"""Moments, and the windows of time in which rows of a state hold.

A moment is a number of nanoseconds since 1970-01-01T00:00:00Z, as OPA's `time.now_ns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from privtab.base.lazy import pattern

FIRST, LAST = -(1 << 63), (1 << 63) - 1
"""The first and the last moment, in 1677 and 2262: a time before or after them is one of them."""
WINDOWED = "windowed"
"""The part of a state's index that shows that rows hold for a time, and contains what windows concern (`state/index_parts.py`)."""
HELD_ALWAYS = (
    "members",
    "service_admins",
    "within",
    "user_attributes",
    "entity_attributes",
    "places",
    "containers",
    "keeps",
)
"""The parts of an index that windows do not concern."""
WINDOW_COLUMNS = ("from", "until")
"""The optional columns of tables whose rows can have a window: a grant `from` one moment `until` another."""
_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pattern(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?([Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)
EARLIEST, LATEST = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND - 1
"""The first and the last nanosecond that `moment_text` can write, in the years 1 and 9999."""
EXAMPLE = "2026-03-03T12:00:00Z"


class Window(NamedTuple):
    """The time in which a row holds: from `begin` on, before `end`.

    >>> Window(0, 10).holds(9), Window(0, 10).holds(10)
    (True, False)
    """

    begin: int = FIRST
    end: int = LAST

    @classmethod
    def between(cls, begin: str | None, end: str | None) -> Window:
        """The window between two times as rows have them, None for an edge that it lacks. Raises WrongTime.

        >>> Window.between(None, "1970-01-01T00:00:01Z").cells()
        (None, '1970-01-01T00:00:01Z')
        """
        return cls(FIRST if begin is None else parse_moment(begin), LAST if end is None else parse_moment(end))

    def holds(self, moment: int) -> bool:
        """Return whether the moment is in the window."""
        return self.begin <= moment < self.end

    def covers(self, other: Window) -> bool:
        """Return whether the whole of another window is in this one."""
        return self.begin <= other.begin and other.end <= self.end

    def cells(self) -> tuple[str | None, str | None]:
        """The cells of a row with the window, as `WINDOW_COLUMNS` names them; None for an edge that the window lacks.

        >>> Window(0).cells()
        ('1970-01-01T00:00:00Z', None)
        """
        begin, end = self
        return None if begin == FIRST else moment_text(begin), None if end == LAST else moment_text(end)

    def describe(self) -> str:
        """The window for people; empty if it has no edges.

        >>> Window(0, 10**9).describe(), ALWAYS.describe()
        ('from 1970-01-01T00:00:00Z until 1970-01-01T00:00:01Z', '')
        """
        edges = zip(WINDOW_COLUMNS, self.cells(), strict=True)
        return " ".join(f"{name} {edge}" for name, edge in edges if edge is not None)


ALWAYS = Window()
"""The window of a row without `from` and `until`."""


class WrongTime(ValueError):
    """A text is not a time: the message begins after the text, `help` says what to write.

    >>> try:
    ...     parse_moment("2026-03-03")
    ... except WrongTime as error:
    ...     print(error, "-", error.help)
    is a date without a time - write `2026-03-03T00:00:00Z` for its beginning in UTC
    """

    def __init__(self, message: str, advice: str = f"write it as `{EXAMPLE}`") -> None:
        super().__init__(message)
        self.help = advice


def parts_of(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The rows of an index, or of one part, that hold at any time, with the revision; and the rows that hold for a time."""
    found = document.get(WINDOWED)
    if found is None:
        return document, {}
    always = {part: value for part, value in document.items() if part != WINDOWED}
    return always | {part: value for part, value in found.items() if part != "windows"}, found["windows"]


def parse_moment(text: str) -> int:
    """The moment of an RFC 3339 time, which may leave off seconds; a time beyond `FIRST` and `LAST` is one of them. Raises WrongTime.

    >>> parse_moment("2026-03-03T12:00:00.5Z") == parse_moment("2026-03-03T13:00:00.5+01:00")
    True
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise WrongTime("is not a time")
    day, hour, minute, second, fraction, zone = found.groups()
    if hour is None:
        raise WrongTime("is a date without a time", f"write `{day}T00:00:00Z` for its beginning in UTC")
    if zone is None:
        raise WrongTime("has no time zone", f"end it with `Z` if it is in UTC, as in `{EXAMPLE}`")
    if len(fraction or "") > 9:
        raise WrongTime("is finer than a nanosecond", "write nine digits after the point, or fewer")
    offset = 0
    if zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 23 or minutes > 59:
            raise WrongTime("has a wrong time zone", f"end it with `Z` if it is in UTC, as in `{EXAMPLE}`")
        offset = (hours * 60 + minutes) * (-60 if zone[0] == "-" else 60)
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise WrongTime("is not a time of a day", "hours end at 23, minutes and seconds at 59")
    try:
        days = date.fromisoformat(day).toordinal() - _EPOCH.toordinal()
    except ValueError:
        raise WrongTime("is not a day of the calendar") from None
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second or 0) - offset
    return min(max(seconds * _SECOND + int((fraction or "").ljust(9, "0")), FIRST), LAST)


def moment_text(moment: int) -> str:
    """A moment, or any nanoseconds in the years 1 to 9999, as RFC 3339 in UTC.

    >>> moment_text(parse_moment("2026-03-03T12:00+01:00")), moment_text(1)
    ('2026-03-03T11:00:00Z', '1970-01-01T00:00:00.000000001Z')
    """
    seconds, fraction = divmod(moment, _SECOND)
    when = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    return f"{when}.{fraction:09d}".rstrip("0") + "Z" if fraction else f"{when}Z"


def edge_text(written: str) -> str | None:
    """A time as a window's edge is written, in UTC; None if it is not a time."""
    try:
        return moment_text(parse_moment(written))
    except WrongTime:
        return None


def union(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Windows that hold when any of these does: ascending, apart from each other, none of them empty.

    >>> union([Window(5, 9), Window(1, 3), Window(2, 4), Window(7, 7)])
    (Window(begin=1, end=4), Window(begin=5, end=9))
    """
    found: list[Window] = []
    for begin, end in sorted(window for window in windows if window.begin < window.end):
        if found and begin <= found[-1].end:
            found[-1] = Window(found[-1].begin, max(found[-1].end, end))
        else:
            found.append(Window(begin, end))
    return tuple(found)


def intersection(windows: Iterable[Window], others: Iterable[Window]) -> tuple[Window, ...]:
    """The times in which any of the windows and any of the others hold; as `union`.

    >>> intersection([Window(1, 5), Window(7, 9)], [Window(4, 8)])
    (Window(begin=4, end=5), Window(begin=7, end=8))
    """
    left, right = list(union(windows)), list(union(others))
    found: list[Window] = []
    in_left = in_right = 0
    while in_left < len(left) and in_right < len(right):
        begin = max(left[in_left].begin, right[in_right].begin)
        end = min(left[in_left].end, right[in_right].end)
        if begin < end:
            found.append(Window(begin, end))
        if left[in_left].end < right[in_right].end:
            in_left += 1
        else:
            in_right += 1
    return tuple(found)
