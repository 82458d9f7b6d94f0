"""Decide by a state that is too large for one process, in portions: requests, and the rows of the state that matter to them.

A portion is an entity near the root with everything below it. What a request needs are the rows about entities on the paths that it
names, and the holdings of its user and the user's groups. A task gets all of these for its portions, and decides them using the same kernel
as everywhere. Requests are read twice, first for their distinct names: a request that appears later is denied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import Entity, Locations, UsageError, Vocabulary
from privtab.ir import Feature
from privtab.state import as_written
from privtab_spark.arguments import RequestColumns
from privtab_spark.frames import union
from privtab_spark.kernel import CHANGED, CODE, CODES, Layout, codes, readable
from privtab_spark.policies import OpenPolicy
from privtab_spark.preflight import check_executors
from privtab_spark.shipping import ShippedBytes
from privtab_spark.shipping import kept as kept_value
from privtab_spark.state.conflicts import collected_places, shipped_places
from privtab_spark.state.row_checks import closed
from privtab_spark.state.schemas import CANONICAL, LOCATED
from privtab_spark.state.tables import CELLS, cells, from_arrow, whole
from privtab_spark.states import LOCAL, batches_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab_spark.state import SparkState

Chains = Mapping[str, Sequence[tuple[str, int]]]
ROWS = 2_000_000
"""Most rows of a portion, if the paths of the state allow it."""
REPEATED = 4
"""Most portions that contain the same row, on average, if the paths of the state allow it."""
DEEPEST = 3
"""Most names in the path of a portion's root entity."""
TASK_ROWS = 250_000
"""Rows and requests that a task gets, about."""
REQUESTS = 250_000
"""Requests of a portion beyond which it is divided, by users."""
MOST_TASKS = 2_000
FEW = 50_000
"""The most requests for which the rows on their paths are looked for, instead of the rows of whole portions."""
REQUEST, ENTITY, USER = "request", "entity", "user"
"""Parts of a portion besides the tables of the state: its requests, its entities, users that no other row of the portion names."""
ATTRIBUTES = "attributes"
WHOLE = "__whole"
"""The path of an entity from the root down, also where ids are flat."""


# --- what both decisions and matrices need ---


def beginning(path: str, names: int) -> Column:
    """The first `names` names of a path."""
    return F.substring_index(path, "/", names) if names else F.lit("")


def beginnings(path: str) -> Column:
    """All prefixes of a path, from the empty one to the whole path."""
    names = F.split(path, "/")
    return F.array_distinct(
        F.transform(F.sequence(F.lit(0), F.size(names)), lambda n: F.array_join(F.slice(names, 1, n), "/"))
    )


def kept(frame: DataFrame) -> DataFrame:
    """A frame that is computed once, on disk: its sources may be large or may differ when they are read again."""
    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def unbroadcast(rows: DataFrame) -> DataFrame:
    """Rows that may be many, and are not to be sent whole to every task: Spark takes them for few where Parquet stores them in few bytes."""
    return rows.hint("merge")


def depth_of(paths: DataFrame, rows: int, deepest: int) -> int:
    """The number of names in a portion's path: the fewest for which each portion is small. `paths`: of all `rows` rows.

    Rows of the ancestors of portions are repeated in each of them: if these are many, fewer and larger portions are less work.
    Raises UsageError if even the smallest portions have more rows than a task can hold.
    """
    counts = paths.groupBy(beginning("path", deepest).alias("path")).agg(F.count("*").alias("rows"))
    depths = F.explode(F.array(*(F.lit(depth) for depth in range(1, deepest + 1)))).alias("depth")
    prefixes = counts.select("path", "rows", depths).withColumn("portion", F.expr("substring_index(path, '/', depth)"))
    rows_at = prefixes.groupBy("depth", "portion").agg(F.sum("rows").alias("rows"))
    ancestors = rows_at.select("depth", "portion", F.explode(beginnings("portion")).alias("path")).where(
        "path != portion"
    )
    with_above = rows_at.unionByName(ancestors.join(unbroadcast(counts), "path").select("depth", "portion", "rows"))
    totals = with_above.groupBy("depth", "portion").agg(F.sum("rows").alias("rows"))
    largest = F.max(F.struct("rows", "portion")).alias("most")
    found = totals.groupBy("depth").agg(largest, F.sum("rows").alias("all")).orderBy("depth").collect()
    possible = [row for row in found if row["most"]["rows"] <= LOCAL]
    if found and not possible:
        most, portion = found[-1]["most"]
        raise UsageError(
            f"the state has {most:,} rows at, above and below `{portion}`, more than the {LOCAL:,} that one task takes: "
            "use a state with fewer rows"
        )
    preferred = [row for row in possible if row["most"]["rows"] <= ROWS and row["all"] <= REPEATED * rows]
    return next((int(row["depth"]) for row in (*preferred, *possible)), 1)


def part(name: str, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows with the column `portion` in the form in which all parts of portions can be united."""
    return rows.select(F.col("portion").alias("root"), F.lit(name).alias("part"), *cells(columns))


def split(portion: Any, parts: Iterable[str]) -> dict[str, Any]:
    """The tables of united parts that have rows, with their own columns."""
    found = {}
    kinds = portion.column("part").cast(pa.string())
    for name in parts:
        rows = portion.filter(pc.equal(kinds, name))
        if rows.num_rows:
            names = CANONICAL.get(name, (name,))
            own = rows.select(CELLS[: len(names)])
            own = own.group_by(own.column_names).aggregate([])  # rows may be in several portions
            found[name] = pa.table([column.cast(pa.string()) for column in own.columns], names=list(names))
    return found


# --- decisions ---


def decide_by_portions(
    request: RequestColumns, policy: OpenPolicy, state: SparkState, *, pin: bool = False
) -> DataFrame:
    """The frame with the additional column `request.code`, as `answer_columns` reads it.

    `pin`: read the rows of the frame once, into a local checkpoint; otherwise they are read twice.

    Raises UsageError for a stream, and if the state cannot be divided into portions that a task can hold.
    """
    if request.frame.isStreaming:
        raise UsageError("a stream is not divided into portions: decide each micro-batch by `each_batch`")
    check_executors(request.frame.sparkSession)
    return _Portions(policy, state.check_policy(policy), request).decided(pin=pin)


class _Portions:
    """Divides requests and a state. Frames of rows have the columns of their table and `portion`."""

    def __init__(self, policy: OpenPolicy, state: SparkState, request: RequestColumns) -> None:
        self.policy, self.state, self.request = policy, state, request
        self.spark = request.frame.sparkSession
        self.names = policy.vocabulary
        self.hierarchy: Sequence[Literal["groups", "roles"]] = policy.json["semantics"].get("hierarchy", ())
        self.below = Feature.BELOW.used_by(policy.as_program)
        self.requests = 0
        self.places = shipped_places(self.spark, state.tables["entities"]) if self.names.flat else None
        self.tables = {table: unbroadcast(rows) for table, rows in state.tables.items()}
        self.located = {table: self._whole(self.tables[table], "type", "path") for table in LOCATED}
        self.depth = self._depth()

    def decided(self, *, pin: bool) -> DataFrame:
        """The caller's columns, and the code of each row; null for a row that was not there when requests were read first."""
        own = list(self.request.columns)
        rows = _binary(self.request.with_canonical_columns(), own)
        if pin:
            rows = rows.localCheckpoint()
        asked = kept(self._divided(rows.select(*own).distinct()))
        self.requests = asked.count()
        answers = self._answers(asked, own)
        keys = {name: f"__privtab_{name}" for name in own}
        equal = reduce(and_, (F.col(name).eqNullSafe(F.col(key)) for name, key in keys.items()))
        found = rows.join(answers.withColumnsRenamed(keys), equal, "left")
        count = len(self.request.frame.columns)
        code = F.coalesce(CODE, F.lit(CODES.index(CHANGED)).cast("tinyint")).alias(self.request.code)
        return found.select(*(f"c{number}" for number in range(count)), code).toDF(
            *self.request.frame.columns, self.request.code
        )

    def _depth(self) -> int:
        if self.below:
            return 1  # what lies below an entity counts, wherever
        deepest = min(DEEPEST, max(chain[-1][1] for chain in self.names.chains.values()))
        paths = union(*(rows.select(F.col(WHOLE).alias("path")) for rows in self.located.values()))
        counts = self.state.counts()
        return depth_of(paths, sum(counts[table] for table in LOCATED), deepest)

    def _divided(self, asked: DataFrame) -> DataFrame:
        """Distinct requests with their portion: the first names of a path, and for many requests also a number by user."""
        whole = self._whole(asked, self._cell("type"), self._cell("path"))
        at = whole.withColumn("place", F.coalesce(beginning(WHOLE, self.depth), F.lit(""))).drop(WHOLE)
        counts = at.groupBy("place").count()
        largest = counts.where(F.col("count") > REQUESTS).collect()
        many = {row["place"]: math.ceil(row["count"] / REQUESTS) for row in largest}
        number = F.lit(0)
        for place, parts in many.items():
            number = F.when(F.col("place") == F.lit(place), F.pmod(F.hash("user"), F.lit(parts))).otherwise(number)
        return at.withColumn("portion", F.concat_ws("\n", "place", number))

    def _cell(self, name: str) -> Column:
        constants = self.request.constants
        return F.lit(constants[name]) if name in constants else F.col(name)

    def _answers(self, asked: DataFrame, own: Sequence[str]) -> DataFrame:
        """The distinct requests with their code."""
        rows = {table: self._spread(rows, asked) for table, rows in self.located.items()}
        rows |= self._principals(asked)
        tables = self.tables
        if ATTRIBUTES in tables:
            users = asked.select("portion", "user").distinct()
            of_users = tables[ATTRIBUTES].where(F.col("user").isNotNull()).join(users, "user")
            of_entities = self._whole(tables[ATTRIBUTES].where(F.col("user").isNull()), "type", "path")
            rows[ATTRIBUTES] = union(
                self._spread(of_entities, asked), of_users.select("portion", *CANONICAL[ATTRIBUTES])
            )
        if "entities" in tables:
            rows["entities"] = self._spread(self._whole(tables["entities"], "type", "path"), asked)
        requests = asked.select(
            F.col("portion").alias("root"), F.lit(REQUEST).alias("part"), F.struct(*own).alias(REQUEST)
        )
        parts = [part(table, frame, CANONICAL[table]) for table, frame in rows.items()]
        whole = union(*parts, requests, missing=True)
        counts = sum(self.state.counts().values()) + self.requests
        tasks = min(MOST_TASKS, counts // TASK_ROWS + 2)
        fields = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in asked.select(*own).schema)
        work = partial(_decide_portions, self.policy, Layout.of(self.request), tuple(rows))
        return whole.repartition(tasks, "root").mapInArrow(work, f"{fields}, `{CODE}` tinyint")

    def _spread(self, rows: DataFrame, asked: DataFrame) -> DataFrame:
        """Rows about entities, repeated for each portion in which they count."""
        columns = ["portion", *(name for name in rows.columns if name != WHOLE)]
        if self.below:
            # What lies anywhere below an entity counts.
            objects = self._entities(asked, self.request.slots).withColumn("place", beginning(WHOLE, self.depth))
            near = asked.select("portion", "place").unionByName(objects.select("portion", "place"))
            return self._in_portions(rows, near).select(*columns)
        few = self.requests <= FEW
        exact = self._entities(asked, (*self.request.slots, *(("",) if few else ())))
        paths = exact.select("portion", F.explode(beginnings(WHOLE)).alias(WHOLE)).distinct()
        at = rows.join(F.broadcast(paths) if few else paths, WHOLE).select(*columns)
        return at if few else self._in_portions(rows, asked).select(*columns).unionByName(at)

    def _in_portions(self, rows: DataFrame, near: DataFrame) -> DataFrame:
        """Rows about entities in portions (`portion`, `place`) or above them."""
        counting = near.distinct().select("portion", F.explode(beginnings("place")).alias("place")).distinct()
        return rows.withColumn("place", beginning(WHOLE, self.depth)).join(counting, "place")

    def _entities(self, asked: DataFrame, slots: Sequence[str]) -> DataFrame:
        """The whole paths of the objects in some slots of the requests, by portion; the slot of the resource is empty."""
        found = asked.select("portion", F.lit(None).cast("string").alias(WHOLE)).limit(0)
        for slot in slots:
            type_, path = (self._cell(f"with_{slot}_{half}" if slot else half) for half in ("type", "path"))
            found = found.unionByName(self._whole(asked, type_, path).select("portion", WHOLE))
        return found.where(F.col(WHOLE).isNotNull()).distinct()

    def _principals(self, asked: DataFrame) -> Mapping[str, DataFrame]:
        """The groups and roles of a portion's users, and of their groups: the rows as they were written."""
        tables = self.tables
        users = asked.select("portion", "user").where(F.col("user").isNotNull()).distinct()
        reach = closed(self.hierarchy, self._keys(), {"memberships": tables["memberships"]})["memberships"]
        groups = reach.join(users, "user").select("portion", F.col("group").alias("name"))
        memberships = tables["memberships"].join(users, "user").select("portion", *CANONICAL["memberships"])
        by_name = [F.array(*map(F.lit, self.policy.everyone))] if self.policy.everyone else []
        if "groups" in self.request.columns and self.names.request_groups:
            by_name.append(F.coalesce("groups", F.array().cast("array<string>")))
        if by_name:
            named = asked.select("portion", F.explode(F.concat(*by_name)).alias("name")).distinct()
            if "groups" in self.hierarchy:
                above = reach.join(named.select("portion", F.concat(F.lit("group:"), "name").alias("user")), "user")
                named = named.unionByName(above.select("portion", F.col("group").alias("name")))
            groups = groups.unionByName(named)
        principals = union(
            users.select("portion", F.concat(F.lit("user:"), "user").alias("principal")),
            groups.select("portion", F.concat(F.lit("group:"), "name").alias("principal")).distinct(),
        )
        assignments = tables["assignments"].join(principals, "principal").select("portion", *CANONICAL["assignments"])
        portions = asked.select("portion").distinct()
        if "groups" in self.hierarchy:
            links = tables["memberships"].where(F.col("user").startswith("group:"))
            memberships = memberships.unionByName(links.crossJoin(portions))
        if "roles" in self.hierarchy:
            links = tables["assignments"].where(F.col("principal").startswith("role:"))
            assignments = assignments.unionByName(links.crossJoin(portions))
        return {
            "memberships": memberships,
            "assignments": assignments,
            "service_admins": tables["service_admins"].join(users, "user").select("portion", "user"),
        }

    def _keys(self) -> Callable[[Entity], list[str]]:
        if not self.names.flat:
            return self.names.keys
        return Locations(self.names.shapes, collected_places(self.state.tables["entities"])).keys

    def _whole(self, rows: DataFrame, type_: str | Column, path: str | Column) -> DataFrame:
        """Rows with the whole path of an entity, null if it lies nowhere."""
        type_, path = (F.col(column) if isinstance(column, str) else column for column in (type_, path))
        if self.places is None:
            return rows.withColumn(WHOLE, path)
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType([*rows.schema.fields, StructField(WHOLE, StringType())])
        work = partial(_with_whole_paths, self.names, self.places)
        return rows.select("*", type_.alias("__type"), path.alias("__path")).mapInArrow(work, schema)


def _binary(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows whose texts compare byte by byte, whatever the collation of their columns."""
    collated = {
        name: F.col(name).cast("array<string>" if name in ("groups", "active_roles") else "string")
        for name in names
        if "collate" in rows.schema[name].dataType.simpleString()
    }
    return rows.withColumns(collated) if collated else rows


# --- on executors ----------------------------------------------------------------------------------------------------


def _with_whole_paths(
    names: Vocabulary, places: ShippedBytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the last two columns, type and path of an entity, become its whole path."""
    where = Locations(names.shapes, kept_value(places))
    named = {
        type_
        for type_, chain in names.chains.items()
        if chain[-1][1] > (chain[-2][1] if len(chain) > 1 else 0)  # a `single` type has no name of its own
    }

    def whole(type_: str | None, path: str | None) -> str | None:
        if type_ is None or path is None or type_ not in names.shapes:
            return None
        try:
            keys = where.find(Entity(type_, path))
        except (ValueError, KeyError):
            return None
        if keys is None:
            return None
        found = [key.split(":", 1) for key in keys]
        return "/".join(id_.rpartition("/")[2] for kind, id_ in found if kind in named)

    for batch in batches:
        *columns, types, paths = batch.columns
        wholes = pa.array(map(whole, readable(types).to_pylist(), readable(paths).to_pylist()), pa.string())
        yield pa.RecordBatch.from_arrays([*columns, wholes], [*batch.schema.names[:-2], WHOLE])


def _decide_portions(
    policy: OpenPolicy, layout: Layout, tables: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: decide the requests of a task's portions by the rows of all of them."""
    if (table := whole(batches)) is None:
        return
    is_request = pc.equal(table.column("part"), REQUEST)
    requests = table.filter(is_request).column(REQUEST).combine_chunks()
    if not len(requests):
        return
    parts = split(table.filter(pc.invert(is_request)), tables)
    del table
    program = policy.as_program
    engine = batches_of(policy, as_written(program, from_arrow(parts)))
    for start in range(0, len(requests), layout.rows):
        chunk = pa.concat_arrays([requests.slice(start, layout.rows)])
        columns = chunk.flatten()
        yield pa.RecordBatch.from_arrays([*columns, codes(engine, layout, columns)], [*layout.columns, CODE])
