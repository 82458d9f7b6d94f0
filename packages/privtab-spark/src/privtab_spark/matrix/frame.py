"""`entitlements`: the matrix as a DataFrame, and how executors get it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import Entity, UsageError
from privtab.state import State
from privtab_spark.columns import without_padding
from privtab_spark.frames import is_frame, of_spark, union
from privtab_spark.matrix import DDL, Matrix, report_omitted
from privtab_spark.matrix.opening import (
    SHIPPED,
    StateSource,
    of_source,
    open_matrix,
    open_state,
    requested_principals,
    texts,
)
from privtab_spark.matrix.question import AttributesLike, Question, Ways
from privtab_spark.moments import Moment
from privtab_spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab_spark.preflight import check_executors
from privtab_spark.shipping import PackedState, kept

if TYPE_CHECKING:
    from pyspark.pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame, SparkSession

    from privtab_spark.state import SparkState


EntitiesLike: TypeAlias = "DataFrame | PandasFrame[Any] | Iterable[str | Entity] | None"
"""A DataFrame with a column `entity` (`type:path`) or with `type` and `path`; a list; None: all entities named by the state."""
UsersLike: TypeAlias = "DataFrame | PandasFrame[Any] | Collection[str] | None"

MOST_PARTITIONS = 64


def entitlements(
    policy: PolicyLike,
    state: object,
    entities: EntitiesLike = None,
    *,
    operations: Collection[str] | None = None,
    principals: Collection[str] | None = None,
    users: UsersLike = None,
    with_: Mapping[str, str | Entity] | None = None,
    flags: Iterable[str] = (),
    attributes: AttributesLike = None,
    ways: Ways = "first",
    partitions: int | None = None,
    spark: SparkSession | None = None,
    at: Moment = None,
) -> DataFrame:
    """The entitlement matrix: one row for each operation that a principal may do on an entity, in no order.

    Columns: `principal` (`user:alice`), `user` (its name; null for a group or a role), `operation`, `type`, `path`; `via_kind`,
    `via_principal` and `via_entity` of the most relevant atom; `via`, all atoms that the entitlement is based on.

    `operations`: names (`load`, or `table/load`); default: all. `users`, `principals`: the subjects; if both are omitted, every user
    named by the state. A group or a role is treated as a subject that holds nothing else. `with_`: objects by slot, for operations
    that need a second object; without it, they are not in the matrix. `flags`: flags that are set. `attributes`: what requests
    give of themselves and of their `with` objects, as in `Client.check`; attributes of users and of `entities` come from the state.
    `ways="all"`: a row for each
    minimal set that holds, instead of only the first. `at`: the time for which rows of the state with `from` or `until` count, a
    datetime with a time zone or a text such as 2026-03-03T12:00Z; default: the time of this call.

    Raises UsageError for names that are unknown to the policy, and the errors of `open_policy` and of reading a state.
    """
    entities, users = of_spark(entities), of_spark(users)
    session = session_of(entities, users, spark)
    check_executors(session)
    opened_policy = open_policy(policy)
    source = open_state(opened_policy, state, session, at=at, most=SHIPPED)
    question = Question.of(operations, with_, flags, attributes, ways)
    if source.tables is not None:
        return _partitioned(session, opened_policy, source.tables, question, entities, users, principals, partitions)
    matrix = open_matrix(opened_policy, source, question, users=user_names(users), principals=principals)
    return matrix_frame(session, opened_policy, matrix, source, entities, partitions=partitions)


def matrix_frame(
    session: SparkSession,
    policy: OpenPolicy,
    matrix: Matrix,
    source: StateSource,
    entities: EntitiesLike,
    *,
    partitions: int | None = None,
) -> DataFrame:
    """The rows of a matrix for the given entities, as a DataFrame."""
    report_omitted(matrix)
    shipped = PackedState.holding(matrix).ship(session)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matrix_: Matrix = kept(shipped)
        for batch in batches:
            yield from matrix_.of(batch.column(0).to_pylist())

    frame = _entities(session, entities)
    if frame is None:
        frame = _local(session, "entity", of_source(policy, source))
    count = partitions or _partitions(session)
    return frame.distinct().repartition(count).mapInArrow(rows, DDL)


def _partitioned(
    session: SparkSession,
    policy: OpenPolicy,
    state: SparkState,
    question: Question,
    entities: EntitiesLike,
    users: UsersLike,
    principals: Collection[str] | None,
    partitions: int | None,
) -> DataFrame:
    """The rows of a matrix by a state that is not collected on the driver; nor are users that are given as a DataFrame."""
    from privtab_spark.matrix.partitioned import MatrixRequest, PartitionedMatrix

    matrix = open_matrix(policy, StateSource(rows=State()), question, users=())
    report_omitted(matrix)
    frames: list[DataFrame] = []
    if is_frame(users):
        frames.append(_first(users).select(F.regexp_replace("user", "^user:", "").alias("user")).na.drop())
    principal_list = requested_principals(None if frames else users, principals) or []  # type: ignore[arg-type]  # not a DataFrame, so a list
    if user_list := [principal[5:] for principal in principal_list if principal.startswith("user:")]:
        frames.append(_local(session, "user", user_list))
    request = MatrixRequest(
        entities=_entities(session, entities),
        all_users=users is None and principals is None,
        users=union(*frames).distinct() if frames else None,
        principals=tuple(principal for principal in principal_list if not principal.startswith("user:")),
    )
    return PartitionedMatrix(policy, state, matrix, request).frame(partitions or _partitions(session))


def _entities(session: SparkSession, entities: EntitiesLike) -> DataFrame | None:
    if entities is None:
        return None
    if not is_frame(entities):
        return _local(session, "entity", texts(entities))  # type: ignore[arg-type]  # not a DataFrame, so a list
    frame = without_padding(cast("DataFrame", entities))
    names = {name.lower() for name in frame.columns}
    if "entity" in names:
        return frame.select(F.col("entity").cast("string").alias("entity"))
    if {"type", "path"} <= names:
        return frame.select(
            F.concat(F.col("type").cast("string"), F.lit(":"), F.col("path").cast("string")).alias("entity")
        )
    raise UsageError(
        f"entities has no column `entity`, and not both `type` and `path`; there are: {', '.join(frame.columns)}"
    )


def _local(session: SparkSession, column: str, texts: list[str]) -> DataFrame:
    if not texts:
        return session.createDataFrame([], f"{column} string")
    return session.createDataFrame(pa.table({column: pa.array(texts, pa.string())}))


def _partitions(session: SparkSession) -> int:
    return max(1, min(int(session.conf.get("spark.sql.shuffle.partitions", "32") or 32), MOST_PARTITIONS))


def session_of(entities: object, users: object, spark: SparkSession | None) -> SparkSession:
    """The given session, that of a DataFrame among the arguments, or the active one; raises UsageError if there is none."""
    if spark is not None:
        return spark
    for frame in (entities, users):
        if is_frame(frame):
            session: SparkSession = frame.sparkSession  # type: ignore[attr-defined]  # a DataFrame
            return session
    from pyspark.sql import SparkSession as Session

    active = Session.getActiveSession()
    if active is None:
        raise UsageError("there is no Spark session: start one, or pass it as `spark=`")
    return active


def user_names(users: UsersLike) -> Collection[str] | None:
    """Users as a list; for a DataFrame, the values of its first column."""
    if is_frame(users):
        table = _first(users).distinct().toArrow()
        return sorted(name for name in table.column(0).to_pylist() if name is not None)
    return users  # type: ignore[return-value]  # not a DataFrame


def _first(users: UsersLike) -> DataFrame:
    """The first column of a DataFrame, as strings."""
    frame = without_padding(cast("DataFrame", users))
    return frame.select(F.col(f"`{frame.columns[0].replace('`', '``')}`").cast("string").alias("user"))
