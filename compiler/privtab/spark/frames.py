"""DataFrames as callers have them: of Spark, or pandas-on-Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from privtab.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = TypeVar("Frame")
"""A DataFrame of Spark or a pandas-on-Spark DataFrame; what comes back is of the same kind."""


def of_spark(value: Any) -> Any:
    """A pandas-on-Spark DataFrame as a DataFrame of Spark, without its index; anything else as it is."""
    return value.spark.frame() if _of_pandas(value) else value


def opened(df: Frame, taken: tuple[str, ...] = ()) -> tuple[DataFrame, Callable[[DataFrame], Frame]]:
    """The DataFrame of Spark behind what a caller gave, and what makes the caller's kind of a result.

    The index of a pandas-on-Spark DataFrame stays: its columns have names that are not `taken`. Raises UsageError for no DataFrame.
    """
    if not _of_pandas(df):
        check_frame(df)
        return cast("DataFrame", df), lambda result: cast("Frame", result)
    given: Any = df
    names = list(given.index.names)
    used = [*map(str, given.columns), *taken]
    index: list[str] = []
    for _ in names:
        index.append(free(f"__privtab_index_{len(index)}", [*used, *index]))
    labels = given.columns

    def back(result: DataFrame) -> Frame:
        found = result.pandas_api(index_col=index)
        found.index.names = names
        kept = len(labels)
        if list(found.columns[:kept]) == [str(label) for label in labels]:
            found.columns = [*labels, *found.columns[kept:]]
        return cast("Frame", found)

    return given.to_spark(index_col=index), back


def check_frame(df: object) -> None:
    """Raise UsageError for what is no DataFrame of either kind of session: they share no class before 4.0's last."""
    if hasattr(df, "mapInArrow") and hasattr(df, "sparkSession"):
        return
    advice = "; write `spark.createDataFrame(df)`" if type(df).__module__.partition(".")[0] == "pandas" else ""
    raise UsageError(f"{described(df)} is no DataFrame of Spark{advice}")


def described(value: object) -> str:
    """What a caller gave, for a message: a short value as it is."""
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def free(name: str, taken: Any) -> str:
    """The name, longer where a column has it already.

    >>> free("x", ["a", "X", "x_"])
    'x__'
    """
    lower = {other.lower() for other in taken}
    while name.lower() in lower:
        name += "_"
    return name


def _of_pandas(value: object) -> bool:
    return type(value).__module__ == "pyspark.pandas.frame"
