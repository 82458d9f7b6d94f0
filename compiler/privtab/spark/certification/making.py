"""Compute the matrix of a certification in this process, or with Spark if it is too large or an input needs Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from privtab.errors import UsageError
from privtab.spark.certification.figures import TooLargeError, WrittenRows, write_matrix
from privtab.spark.frames import is_frame
from privtab.spark.matrix import named
from privtab.spark.matrix.matrix import Matrix, report_omitted
from privtab.spark.matrix.opening import StateSource, open_state
from privtab.spark.policies import OpenPolicy
from privtab.spark.state.schemas import TABLES, is_written
from privtab.state.nodes import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.spark.matrix.frame import EntitiesLike, UsersLike


SessionLike: TypeAlias = "SparkSession | Callable[[], SparkSession] | None"
"""A session, or a function that starts one if it is needed."""
ROWS = 1_000_000
"""Most rows of a state for which this process computes the matrix."""
MOST = 20_000_000
"""Most rows of a matrix that this process writes; beyond, Spark takes over unless the plan is `process`."""
PLANS = ("auto", "process", "spark")


class MatrixMaker:
    """Computes the rows of a matrix by the plan that it chooses."""

    def __init__(
        self,
        policy: OpenPolicy,
        state: object,
        entities: EntitiesLike,
        users: UsersLike,
        spark: SessionLike,
        plan: str,
    ) -> None:
        """Choose the plan; raises UsageError for an unknown plan, and for `process` if an argument needs Spark."""
        if plan not in PLANS:
            raise UsageError(f"unknown plan `{plan}`; there are: auto, process, spark")
        self.policy, self.state, self.entities, self.requested_users, self.spark = policy, state, entities, users, spark
        self.forced = plan == "process"
        self._read: StateSource | None = None
        spark_input = _needs_spark(state, entities, users)
        if spark_input is not None and self.forced:
            raise UsageError(f"{spark_input} is read by Spark: take the plan `spark` or `auto`")
        if plan == "spark" or spark_input is not None:
            self.plan, self.why = (
                "spark",
                f"{spark_input} is read by Spark" if spark_input else "the caller asks for it",
            )
            return
        self._read = open_state(policy, state)
        self.plan, self.why = self._by_size(self._read)

    def _by_size(self, source: StateSource) -> tuple[str, str]:
        if self.forced:
            return "process", "the caller asks for it"
        if source.rows is None:
            return "process", "a state bundle is an index already"
        count = sum(len(getattr(source.rows, table)) for table in TABLES)
        if count > ROWS:
            return "spark", f"the state has {count:,} rows, more than {ROWS:,}"
        return "process", f"the state has {count:,} rows"

    def session(self) -> SparkSession:
        """The session, started if necessary."""
        from privtab.spark.matrix.frame import session_of
        from privtab.spark.preflight import check_executors

        if callable(self.spark) and not hasattr(self.spark, "createDataFrame"):
            self.spark = self.spark()
        session = session_of(self.entities, self.requested_users, cast("SparkSession | None", self.spark))
        check_executors(session)
        return session

    def source(self) -> StateSource:
        """The state."""
        return self._read or open_state(self.policy, self.state, self.session())

    def users(self) -> Collection[str] | None:
        """The users that the matrix is restricted to, if any."""
        if not is_frame(self.requested_users):
            return cast("Collection[str] | None", self.requested_users)
        from privtab.spark.matrix.frame import user_names

        return user_names(self.requested_users)

    def rows(
        self,
        folder: Path,
        matrix: Matrix,
        source: StateSource,
        shown: int,
        progress: Callable[[str], None],
    ) -> WrittenRows:
        """Write the rows to a folder. `shown`: number of rows on the page."""
        if self.plan == "process":
            report_omitted(matrix)
            try:
                write_matrix(matrix, self._keys(source), folder, None if self.forced else MOST)
            except TooLargeError as error:
                shutil.rmtree(folder)
                progress(f"spark: {error}")
        if not folder.exists():
            from privtab.spark.matrix.frame import matrix_frame

            frame = matrix_frame(self.session(), self.policy, matrix, source, self.entities)
            frame.write.parquet(folder.as_uri())
        return WrittenRows(folder, self.policy.destructive, shown)

    def _keys(self, source: StateSource) -> list[str]:
        if self.entities is None:
            return named.of_source(self.policy, source)
        return sorted(named.texts(cast("Iterable[object]", self.entities)))


def _needs_spark(state: object, entities: EntitiesLike, users: UsersLike) -> str | None:
    """The argument that only Spark can read, for messages; None: there is none."""
    for description, value in (("the DataFrame of entities", entities), ("the DataFrame of users", users)):
        if is_frame(value):
            return description
    if isinstance(state, str | os.PathLike):
        return f"{os.fspath(state)}, which Spark wrote," if is_written(state) else None
    return None if isinstance(state, State) or state is None else f"a state given as a {type(state).__name__}"
