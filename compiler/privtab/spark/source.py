"""`spark.read.format("privtab")`: the matrix as a data source, with the filters of a query pushed down into it."""

from __future__ import annotations

import contextlib
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
from privtab.spark.matrix.broadcast import opened, parcel
from privtab.spark.matrix.compute import COLUMNS, DDL, Matrix, Question, check
from privtab.spark.matrix.opening import asked_about, everybody, open_state, open_world
from privtab.spark.policies import open_policy
from privtab.spark.preflight import check_executors
from privtab.spark.shipping import Shipped

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
    "ways",
    "partitions",
    "pushdown",
)
PARTITIONS = 8
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_EXACT = ("principal", "user", "operation", "type", "path")
"""Columns whose filters are taken over whole."""


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make `spark.read.format("privtab")` known to a session.

    Raises DecisionUnavailable where the Python of the executors lacks privtab.
    `pushdown` lets Spark push filters into Python data sources (4.1 and later), into those that have the option `pushdown` set.
    """
    check_executors(spark)
    spark.dataSource.register(EntitlementSource)
    if pushdown:
        with contextlib.suppress(Exception):  # 4.0 knows no such setting
            spark.conf.set(PUSHDOWN, "true")


class EntitlementSource(DataSource):
    """The matrix, as `entitlements` has it.

    Options: `policy`, `state`, and where wanted `entities` (a file), `operations`, `users`, `principals`, `flags` (lists with
    commas or in JSON), `with` (JSON), `ways`, `partitions`, `pushdown`. The driver reads the files; executors need none of them.

    `pushdown` is off unless it is asked for: Spark keeps what it pushed last with what was loaded, so a second query of the same
    DataFrame, or a second branch of one, would get the rows of the other's filters.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "privtab"

    def schema(self) -> str:
        """The columns of `entitlements`."""
        return DDL

    def reader(self, schema: StructType | None) -> DataSourceReader:
        """Raises UsageError for options that are missing or unknown, and for columns that there are not."""
        given = {str(key).lower(): str(value) for key, value in self.options.items()}
        for key in given:
            if key not in OPTIONS and key != "path":
                raise UsageError(f"format privtab: unknown option `{key}`" + hint(key, OPTIONS))
        for key in ("policy", "state"):
            if not given.get(key):
                raise UsageError(f"format privtab: give the option `{key}`")
        if "entities" in given and "path" in given:
            raise UsageError("format privtab: a path was given to load, and the option `entities`: give one of them")
        pushdown = given.get("pushdown", "false").lower()
        if pushdown not in ("true", "false"):
            raise UsageError(f"format privtab: option `pushdown` is `{pushdown}`: give true or false")
        return (NarrowedReader if pushdown == "true" else EntitlementReader)(given, _columns(schema))


class EntitlementReader(DataSourceReader):
    """One reading: what is asked."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str] = tuple(COLUMNS)) -> None:
        self.options = dict(options)
        self.columns = list(columns)
        self.narrowed: dict[str, frozenset[str]] = {}
        """By column the values that the filters of a query leave."""
        self._shipped: Shipped | None = None
        self._policy = open_policy(options["policy"])
        if (Path(options["state"]) / "_MANIFEST.json").is_file():
            raise UsageError(f"format privtab: {options['state']} holds tables that Spark wrote: take `entitlements`")
        self._source = open_state(self._policy, options["state"])
        asked = self._list("operations")
        self._question = Question(
            operations=None if asked is None else frozenset(asked),
            withs=self._withs(),
            flags=frozenset(self._list("flags") or ()),
            ways=options.get("ways", "first"),  # type: ignore[arg-type]  # what it may be is checked next
        )
        check(self._question, self._policy.vocabulary)
        self._named = self._list("users"), self._list("principals")
        asked_about(*self._named)
        self._count = self._number("partitions", PARTITIONS)
        file = options.get("entities") or options.get("path")
        chains = self._policy.vocabulary.chains
        self._keys = named.of_source(self._source, chains) if file is None else named.from_file(Path(file))

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader once all filters are known, and sends it to the executors: they need none of the files.
        return {"narrowed": self.narrowed, "columns": self.columns, "_shipped": self._parcel()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def partitions(self) -> Sequence[InputPartition]:
        """The entities in portions."""
        keys = [key for key in self._keys if self._wanted(key)]
        count = max(1, min(self._count, len(keys)))
        return [InputPartition(keys[at::count]) for at in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some entities."""
        assert self._shipped is not None
        batches = opened(self._shipped).of(partition.value)
        narrowed = {column: pa.array(sorted(texts), pa.string()) for column, texts in self.narrowed.items()}
        for batch in batches:
            yield _left(batch, narrowed).select(self.columns)

    def _parcel(self) -> Shipped:
        """The matrix of what the query leaves."""
        if self._shipped is None:
            users, principals = self._subjects(*self._named)
            matrix = Matrix(open_world(self._policy, self._source, users=users, principals=principals), self._question)
            if "operation" in self.narrowed:
                matrix.narrow(self.narrowed["operation"])
            self._shipped = parcel(matrix)
        return self._shipped

    def _subjects(
        self, users: list[str] | None, principals: list[str] | None
    ) -> tuple[list[str] | None, list[str] | None]:
        """Who is asked about: of those named by options, or of all users, whom the query leaves."""
        only = self.narrowed.get("user")
        labels = self.narrowed.get("principal")
        if only is not None:
            labels = frozenset(f"user:{user}" for user in only) & (labels or frozenset(f"user:{user}" for user in only))
        if labels is None:
            return users, principals
        there = asked_about(users, principals)
        if there is None:
            there = [f"user:{user}" for user in everybody(self._policy, self._source)]
        return [], sorted(labels & set(there))

    def _wanted(self, key: str) -> bool:
        type_, _, path = key.partition(":")
        return all(
            column not in self.narrowed or value in self.narrowed[column]
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
                raise UsageError(f"format privtab: option `{option}` is no list of texts")
            return value
        return [part.strip() for part in text.split(",") if part.strip()]

    def _withs(self) -> dict[str, Entity]:
        text = self.options.get("with")
        value = {} if text is None else self._json("with", text)
        if not isinstance(value, dict):
            raise UsageError("format privtab: option `with` is no JSON object of entities by slot")
        try:
            return {slot: Entity.parse(str(entity)) for slot, entity in value.items()}
        except ValueError as error:
            raise UsageError(f"format privtab: option `with`: {error}") from error

    def _json(self, option: str, text: str) -> Any:
        try:
            return strict_json.loads(text)
        except ValueError as error:
            raise UsageError(f"format privtab: option `{option}` is no JSON: {error}") from error

    def _number(self, option: str, otherwise: int) -> int:
        text = self.options.get(option)
        if text is None:
            return otherwise
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"format privtab: option `{option}` is `{text}`: give a number, 1 or more")
        return int(text)


class NarrowedReader(EntitlementReader):
    """One reading that is narrowed by the filters of the one query that it is for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Take over equalities and lists of values; gives back what Spark has to look at itself."""
        for given in filters:
            values = _values(given)
            if values is None:
                yield given
            else:
                column, texts = values
                known = self.narrowed.get(column)
                self.narrowed[column] = texts if known is None else known & texts


def _columns(schema: StructType | None) -> list[str]:
    """The columns that are wanted; raises UsageError where there are none such."""
    if schema is None:
        return list(COLUMNS)
    via = DDL.partition(" via ")[2].replace(": ", ":").replace(", ", ",")
    types = dict.fromkeys(COLUMNS, "string") | {"via": via}
    for column in schema.fields:
        kind = column.dataType.simpleString()
        if column.name not in types:
            there = ", ".join(types)
            raise UsageError(f"format privtab: no column `{column.name}`{hint(column.name, types)}; there are: {there}")
        if kind != types[column.name]:
            raise UsageError(f"format privtab: column `{column.name}` is no {kind}, it is {types[column.name]}")
    return [column.name for column in schema.fields]


def _values(given: Filter) -> tuple[str, frozenset[str]] | None:
    """The column and the values that a filter leaves; None where it is of another kind."""
    from pyspark.sql.datasource import EqualTo, In

    if isinstance(given, EqualTo):
        values: tuple[Any, ...] = (given.value,)
    elif isinstance(given, In):
        # A null among the values is equal to nothing.
        values = tuple(value for value in given.value if value is not None)
    else:
        return None
    (column, *inner) = given.attribute
    if inner or column not in _EXACT or not all(isinstance(value, str) for value in values):
        return None
    return column, frozenset(values)


def _left(batch: pa.RecordBatch, narrowed: Mapping[str, pa.Array]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    for column, values in narrowed.items():
        batch = batch.filter(pc.is_in(batch.column(column), value_set=values))
    return batch
