"""The kinds of DataFrames that callers may pass: Spark and pandas-on-Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar, cast

from privtab.base import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = TypeVar("Frame")
"""A Spark DataFrame or a pandas-on-Spark DataFrame; the result is of the same kind."""


def of_spark(value: Any) -> Any:
    """A pandas-on-Spark DataFrame as a Spark DataFrame without the index; anything else unchanged."""
    return value.spark.frame() if _of_pandas(value) else value


def opened(df: Frame, taken: tuple[str, ...] = ()) -> tuple[DataFrame, Callable[[DataFrame], Frame]]:
    """The caller's DataFrame as a Spark DataFrame, and a function that converts a result back to the caller's kind.

    The index of a pandas-on-Spark DataFrame is kept, in columns whose names are not `taken`. Raises UsageError for anything else.
    """
    if not _of_pandas(df):
        check_frame(df)
        return cast("DataFrame", df), lambda result: cast("Frame", result)
    pandas_frame: Any = df
    names = list(pandas_frame.index.names)
    used_names = [*map(str, pandas_frame.columns), *taken]
    index: list[str] = []
    for _ in names:
        index.append(free(f"__privtab_index_{len(index)}", [*used_names, *index]))
    labels = pandas_frame.columns

    def to_caller(result: DataFrame) -> Frame:
        found = result.pandas_api(index_col=index)
        found.index.names = names
        label_count = len(labels)
        if list(found.columns[:label_count]) == [str(label) for label in labels]:
            found.columns = [*labels, *found.columns[label_count:]]
        return cast("Frame", found)

    return pandas_frame.to_spark(index_col=index), to_caller


def is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame of Spark, Classic or Connect: early 4.0 releases have no class common to both."""
    return hasattr(value, "mapInArrow") and hasattr(value, "sparkSession")


def union(*frames: DataFrame, missing: bool = False) -> DataFrame:
    """The rows of all frames, columns by name; `missing`: a frame may lack some, which are null."""
    return reduce(lambda first, second: first.unionByName(second, allowMissingColumns=missing), frames)


def row_counts(frames: Mapping[str, Iterable[DataFrame]]) -> dict[str, int]:
    """The number of rows of all frames of each name, counted in one pass."""
    from pyspark.sql import functions as F  # noqa: N812

    named = [frame.select(F.lit(name).alias("name")) for name, own in frames.items() for frame in own]
    found = {row["name"]: row["count"] for row in union(*named).groupBy("name").count().collect()} if named else {}
    return {name: found.get(name, 0) for name in frames}


def check_frame(df: object) -> None:
    """Raise UsageError for anything but a DataFrame of Spark."""
    if is_frame(df):
        return
    advice = "; write `spark.createDataFrame(df)`" if type(df).__module__.partition(".")[0] == "pandas" else ""
    raise UsageError(f"{described(df)} is not a Spark DataFrame{advice}")


def described(value: object) -> str:
    """A value for a message: its repr if that is short, otherwise its type."""
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def free(name: str, taken: Any) -> str:
    """The name, with underscores appended if a column already has it.

    >>> free("x", ["a", "X", "x_"])
    'x__'
    """
    lower = {other.lower() for other in taken}
    while name.lower() in lower:
        name += "_"
    return name


def folded(name: str) -> str:
    """A name with a mark after each letter that was a capital: names that differ in case alone are different columns to Spark as well.

    >>> folded("ownerID"), folded("ownerid")
    ('owneri^d^', 'ownerid')
    """
    return re.sub("[A-Z]", lambda capital: f"{capital[0].lower()}^", name)


def flag_column(name: str) -> str:
    """The canonical name of the column of a flag."""
    return f"flag_{folded(name)}"


def _of_pandas(value: object) -> bool:
    return type(value).__module__ == "pyspark.pandas.frame"
