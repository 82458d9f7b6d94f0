"""`spark.read.format("privtab")`: the entitlement matrix as a data source that supports filter pushdown."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from privtab import strict_json
from privtab.errors import UsageError
from privtab.hints import hint
from privtab.request import Entity
from privtab.spark.matrix import named
from privtab.spark.matrix.broadcast import opened, pickled_matrix
from privtab.spark.matrix.opening import all_users, open_matrix, open_state, requested_principals
from privtab.spark.matrix.question import COLUMNS, DDL, Question, check, given
from privtab.spark.policies import open_policy
from privtab.spark.preflight import check_executors
from privtab.spark.shipping import ShippedBytes
from privtab.spark.state.schemas import is_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

OPTIONS = (
    "policy",
    "state",
    "entities",
    "operations",
    "users",
    "principals",
    "flags",
    "with",
    "attributes",
    "ways",
    "partitions",
    "pushdown",
)
PARTITIONS = 8
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_EXACT = ("principal", "user", "operation", "type", "path")
"""Columns whose filters the source can apply completely."""


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Register `spark.read.format("privtab")` in a session.

    Raises DecisionUnavailable if the executors' Python lacks privtab. `pushdown` lets Spark (4.1 and later) push filters into Python
    data sources; a read must also set the option `pushdown`.
    """
    check_executors(spark)
    spark.dataSource.register(EntitlementSource)
    if pushdown:
        with contextlib.suppress(Exception):  # Spark 4.0 has no such setting
            spark.conf.set(PUSHDOWN, "true")


class EntitlementSource(DataSource):
    """The entitlement matrix, with the same rows as `entitlements`.

    Options: `policy`, `state`, and optionally `entities` (a file), `operations`, `users`, `principals`, `flags` (lists, separated
    by commas or in JSON), `with` (JSON), `ways`, `partitions`, `pushdown`. Only the driver reads the files.

    `pushdown` is off by default: Spark stores the filters that it pushed last in the loaded relation, so a second query of the same
    DataFrame, or a second branch of one query, would get rows filtered for the other.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "privtab"

    def schema(self) -> str:
        """The columns of `entitlements`."""
        return DDL

    def reader(self, schema: StructType | None) -> DataSourceReader:
        """The reader; raises UsageError for missing or unknown options and for unknown columns."""
        options = {str(key).lower(): str(value) for key, value in self.options.items()}
        for key in options:
            if key not in OPTIONS and key != "path":
                raise UsageError(f"format privtab: unknown option `{key}`" + hint(key, OPTIONS))
        for key in ("policy", "state"):
            if not options.get(key):
                raise UsageError(f"format privtab: give the option `{key}`")
        if "entities" in options and "path" in options:
            raise UsageError("format privtab: a path was given to load, and the option `entities`: give one of them")
        pushdown = options.get("pushdown", "false").lower()
        if pushdown not in ("true", "false"):
            raise UsageError(f"format privtab: option `pushdown` is `{pushdown}`: give true or false")
        return (NarrowedReader if pushdown == "true" else EntitlementReader)(options, _columns(schema))


class EntitlementReader(DataSourceReader):
    """Reads the matrix for one set of options."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str] = tuple(COLUMNS)) -> None:
        self.options = dict(options)
        self.columns = list(columns)
        self.pushed: dict[str, frozenset[str]] = {}
        """By column, the values that pass the filters of the query."""
        self._shipped: ShippedBytes | None = None
        if is_written(options["state"]):
            raise UsageError(
                f"format privtab: {options['state']} holds tables written by Spark, which this format cannot read: use `entitlements`"
            )
        try:
            self._policy = open_policy(options["policy"])
            self._source = open_state(self._policy, options["state"])
        except ImportError as error:
            raise UsageError(
                f"format privtab: the Python of this session, {sys.executable}, has no `{error.name}`, which reading these files needs: give "
                "policy and state as bundles"
            ) from None
        operations = self._list("operations")
        self._question = Question(
            operations=None if operations is None else frozenset(operations),
            withs=self._withs(),
            flags=frozenset(self._list("flags") or ()),
            attributes=given(self._object("attributes")),
            ways=options.get("ways", "first"),  # type: ignore[arg-type]  # validated below
        )
        check(self._question, self._policy.vocabulary)
        self._named = self._list("users"), self._list("principals")
        requested_principals(*self._named)
        self._count = self._number("partitions", PARTITIONS)
        file = options.get("entities") or options.get("path")
        self._keys = named.of_source(self._policy, self._source) if file is None else named.from_file(Path(file))

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader for the executors after it has pushed the filters; the executors need no files.
        return {"pushed": self.pushed, "columns": self.columns, "_shipped": self._packed_matrix()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def partitions(self) -> Sequence[InputPartition]:
        """The entities, divided into partitions."""
        keys = [key for key in self._keys if self._passes_filters(key)]
        count = max(1, min(self._count, len(keys)))
        return [InputPartition(keys[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the entities of one partition."""
        assert self._shipped is not None
        batches = opened(self._shipped).of(partition.value)
        pushed = {column: pa.array(sorted(texts), pa.string()) for column, texts in self.pushed.items()}
        for batch in batches:
            yield _filtered(batch, pushed).select(self.columns)

    def _packed_matrix(self) -> ShippedBytes:
        """The matrix for the users and operations that pass the filters, packed for the executors."""
        if self._shipped is None:
            users, principals = self._subjects(*self._named)
            matrix = open_matrix(self._policy, self._source, self._question, users=users, principals=principals)
            if "operation" in self.pushed:
                matrix.narrow(self.pushed["operation"])
            self._shipped = pickled_matrix(matrix)
        return self._shipped

    def _subjects(
        self, users: list[str] | None, principals: list[str] | None
    ) -> tuple[list[str] | None, list[str] | None]:
        """The users and principals of the query: those named by options, or all users, that pass the filters."""
        user_filter = self.pushed.get("user")
        principal_filter = self.pushed.get("principal")
        if user_filter is not None:
            principal_filter = frozenset(f"user:{user}" for user in user_filter) & (
                principal_filter or frozenset(f"user:{user}" for user in user_filter)
            )
        if principal_filter is None:
            return users, principals
        asked_principals = requested_principals(users, principals)
        if asked_principals is None:
            asked_principals = [f"user:{user}" for user in all_users(self._policy, self._source)]
        return [], sorted(principal_filter & set(asked_principals))

    def _passes_filters(self, key: str) -> bool:
        type_, _, path = key.partition(":")
        return all(
            column not in self.pushed or value in self.pushed[column]
            for column, value in (("type", type_), ("path", path))
        )

    def _list(self, option: str) -> list[str] | None:
        text = self.options.get(option)
        if text is None:
            return None
        if not text.strip():
            raise UsageError(f"format privtab: option `{option}` is empty: leave it off, or give names")
        if text.lstrip().startswith("["):
            value = self._json(option, text)
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise UsageError(f"format privtab: option `{option}` is not a list of strings")
            return value
        return [part.strip() for part in text.split(",") if part.strip()]

    def _withs(self) -> dict[str, Entity]:
        try:
            return {slot: Entity.parse(str(entity)) for slot, entity in self._object("with").items()}
        except ValueError as error:
            raise UsageError(f"format privtab: option `with`: {error}") from error

    def _object(self, option: str) -> dict[str, Any]:
        text = self.options.get(option)
        value = {} if text is None else self._json(option, text)
        if not isinstance(value, dict):
            content = "entities by slot" if option == "with" else "values by kind and name"
            raise UsageError(f"format privtab: option `{option}` is not a JSON object of {content}")
        return value

    def _json(self, option: str, text: str) -> Any:
        try:
            return strict_json.loads(text)
        except ValueError as error:
            raise UsageError(f"format privtab: option `{option}` is not JSON: {error}") from error

    def _number(self, option: str, default: int) -> int:
        text = self.options.get(option)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"format privtab: option `{option}` is `{text}`: give a number, 1 or more")
        return int(text)


class NarrowedReader(EntitlementReader):
    """Reads the part of the matrix that passes the filters of one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Accept equalities and lists of values; returns the filters that Spark must apply itself."""
        for filter_ in filters:
            values = _values(filter_)
            if values is None:
                yield filter_
            else:
                column, texts = values
                known = self.pushed.get(column)
                self.pushed[column] = texts if known is None else known & texts


def _columns(schema: StructType | None) -> list[str]:
    """The requested columns; raises UsageError for unknown columns and wrong types."""
    if schema is None:
        return list(COLUMNS)
    via = DDL.partition(" via ")[2].replace(": ", ":").replace(", ", ",")
    types = dict.fromkeys(COLUMNS, "string") | {"via": via}
    for column in schema.fields:
        kind = column.dataType.simpleString()
        if column.name not in types:
            column_names = ", ".join(types)
            raise UsageError(
                f"format privtab: no column `{column.name}`{hint(column.name, types)}; there are: {column_names}"
            )
        if kind != types[column.name]:
            raise UsageError(f"format privtab: column `{column.name}` has type {types[column.name]}, not {kind}")
    return [column.name for column in schema.fields]


def _values(filter_: Filter) -> tuple[str, frozenset[str]] | None:
    """The column and the values that pass a filter; None for a filter of another kind."""
    from pyspark.sql.datasource import EqualTo, In

    if isinstance(filter_, EqualTo):
        values: tuple[Any, ...] = (filter_.value,)
    elif isinstance(filter_, In):
        # A null in the list matches nothing.
        values = tuple(value for value in filter_.value if value is not None)
    else:
        return None
    (column, *inner) = filter_.attribute
    if inner or column not in _EXACT or not all(isinstance(value, str) for value in values):
        return None
    return column, frozenset(values)


def _filtered(batch: pa.RecordBatch, pushed: Mapping[str, pa.Array]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    for column, values in pushed.items():
        batch = batch.filter(pc.is_in(batch.column(column), value_set=values))
    return batch
