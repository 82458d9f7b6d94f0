"""Decide each micro-batch of a stream by the state of its moment: for states that executors cannot look at themselves."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from privtab.errors import UsageError
from privtab.spark.deciding import BatchArguments, decide
from privtab.spark.policies import PolicyLike, open_policy
from privtab.spark.states import drop_cached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def each_batch(
    write: Callable[[DataFrame, int], Any],
    policy: PolicyLike,
    state: str | os.PathLike[str] | Callable[[SparkSession], Any],
    **arguments: Unpack[BatchArguments],
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that decides each micro-batch by the current state and calls `write(decided, number)`.

    `state`: a path, whose files are checked for each micro-batch; or a function of the session that returns a state as `decide` takes
    it, `lambda spark: {"grants": spark.table("grants")}`, called for each micro-batch. Joins are supported, too. A change after the
    beginning of a micro-batch takes effect in the next one. The other arguments are those of `decide`, without `refresh`.
    """
    opened = open_policy(policy)
    if not (isinstance(state, str | os.PathLike) or callable(state)):
        raise UsageError(
            f"a {type(state).__name__} cannot change: give the path of a state, or a function of the session that gives one"
        )
    # A wrong argument fails here, not in the first micro-batch.
    inspect.signature(decide).bind(None, opened, state, **arguments)
    if "refresh" in arguments:
        raise TypeError("each_batch() takes no `refresh`: it reads the state for each micro-batch")

    def decide_batch(batch: DataFrame, number: int) -> None:
        current_state = state(batch.sparkSession) if callable(state) else state
        decided = decide(batch, opened, current_state, **arguments)
        try:
            write(decided, number)
        finally:
            if callable(state):
                drop_cached(current_state)

    return decide_batch
