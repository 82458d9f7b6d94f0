"""The moment for which Spark decides by a state in which rows hold for a time: one for a whole job, or one for each row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from privtab.base import HasWindows, UsageError, Window, WrongTime, moment_text, parse_moment
from privtab_spark.frames import union
from privtab_spark.states import memoised

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab_spark.states import Timed

T = TypeVar("T")
Moment: TypeAlias = datetime | str | None
"""A time with its time zone, or RFC 3339 text (2026-03-03T12:00Z); None: the time of the call."""
MOST_MOMENTS = 32
"""Limit on the times at which a state changes if each row of a DataFrame has its own time: every one costs a pass over the rows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_column(at: object) -> bool:
    """Return whether a time is given by a Column, Classic or Connect."""
    return hasattr(at, "isNotNull")


def moment_of(at: Moment) -> int:
    """A moment in nanoseconds. Raises UsageError for a text that is not a time, and for a time without a time zone."""
    if at is None:
        return time_ns()
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(f"at is {at!r}, without a time zone: give it one, such as datetime.UTC")
        return (at - _EPOCH) // timedelta(microseconds=1) * 1000
    if not isinstance(at, str):
        raise UsageError(f"at is {at!r}: give a datetime with a time zone, or a text such as 2026-03-03T12:00Z")
    try:
        return parse_moment(at)
    except WrongTime as error:
        raise UsageError(f"at is `{at}`, which {error}: {error.help}") from None


def at_moment(at: Moment, state: Any, run: Callable[[Any], T], report: Callable[[str], object] | None = None) -> T:
    """`run(state)`, or if rows of the state hold for a time only, `run` with the state of the moment.

    `report`: takes a sentence about the moment if it counts.
    """
    moment_ = moment_of(at)
    try:
        return run(state)
    except HasWindows as error:
        if report is not None:
            report(f"the rows of the state count that hold at {moment_text(moment_)}")
        return run(state_at(cast("Timed", error.state), moment_))


def state_at(state: Timed, moment_: int) -> Any:
    """The state at a moment; the same object for moments between which it does not change."""
    edges = state.edges()
    return memoised(("at", id(state), bisect_right(edges, moment_)), state, lambda: state.at(moment_))


def each_moment(
    frame: DataFrame,
    at: Column,
    state: Timed,
    decide: Callable[[DataFrame, Any], DataFrame],
    deny: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Decide each row by the state at its own time; a row without a time is denied.

    Raises UsageError if the column has no timestamps with a time zone, or if the state changes too often.
    """
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    kind = frame.select(at).schema[0].dataType.typeName()
    if kind != "timestamp":
        raise UsageError(
            f"at is a column of the type {kind}: give one of timestamps, which mean the same moment everywhere"
        )
    edges = state.edges()
    if len(edges) > MOST_MOMENTS:
        raise UsageError(
            f"the state changes {len(edges):,} times, and {MOST_MOMENTS} is the most for a column of times: decide the rows "
            "of one time by `at=` with that time"
        )
    micros = F.unix_micros(at)
    parts = []
    for number in range(len(edges) + 1):
        in_span = micros.isNotNull()
        if number:
            in_span &= micros >= F.lit(-(-edges[number - 1] // 1000))
        if number < len(edges):
            in_span &= micros < F.lit(-(-edges[number] // 1000))
        begin = edges[number - 1] if number else Window().begin
        parts.append(decide(frame.where(in_span), state_at(state, begin)))
    parts.append(deny(frame.where(micros.isNull())))
    return union(*parts)
