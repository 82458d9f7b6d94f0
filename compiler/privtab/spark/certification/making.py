"""Compute the matrix of a certification in this process, or with Spark if it is too large or an input needs Spark."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from privtab.errors import PrivtabError, UsageError
from privtab.printable import no_formula
from privtab.spark.certification.results import (
    BARE,
    GROUPS,
    PAIRS,
    SIDE,
    SIDES,
    DestructivePrincipal,
    HeatMap,
    Rows,
    Totals,
    assembled,
)
from privtab.spark.frames import is_frame
from privtab.spark.matrix import named
from privtab.spark.matrix.matrix import ANYONE, DDL, SCHEMA, Matrix, report_omitted
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
    ) -> Rows:
        """Write the rows to a folder. `shown`: number of rows on the page."""
        if self.plan == "process":
            report_omitted(matrix)
            try:
                write_matrix(matrix, self._keys(source), folder, None if self.forced else MOST)
                return LocalRows(folder, self.policy.destructive, shown)
            except TooLargeError as error:
                shutil.rmtree(folder)
                progress(f"spark: {error}")
        from privtab.spark.certification.figures import SparkRows
        from privtab.spark.matrix.frame import matrix_frame

        session = self.session()
        matrix_frame(session, self.policy, matrix, source, self.entities).write.parquet(folder.as_uri())
        return SparkRows(session.read.schema(DDL).parquet(folder.as_uri()), self.policy.destructive)

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


CHUNK = 1 << 20
"""Number of rows that are written and counted at once."""
ENTITIES = 256
"""Number of entities that are computed at once."""
_ORDER = [("destructive", "descending"), *((name, "ascending") for name in ("principal", "path", "type", "operation"))]
FILE = "part-00000.parquet"


class TooLargeError(PrivtabError):
    """A matrix has more rows than one process should handle."""


def write_matrix(matrix: Matrix, keys: Sequence[str], folder: Path, most: int | None) -> None:
    """Write the rows of the entities `keys` as one Parquet file; raises TooLargeError beyond `most` rows (None: no limit)."""
    folder.mkdir()
    count = size = 0
    waiting: list[pa.RecordBatch] = []
    with parquet.ParquetWriter(folder / FILE, SCHEMA) as writer:
        for begin in range(0, len(keys), ENTITIES):
            for batch in matrix.of(keys[begin : begin + ENTITIES]):
                waiting.append(batch)
                count += batch.num_rows
                size += batch.num_rows
                if most is not None and count > most:
                    raise TooLargeError(f"the matrix has more than {most:,} rows")
                if size >= CHUNK:
                    writer.write_table(pa.Table.from_batches(waiting, SCHEMA), row_group_size=CHUNK)
                    waiting, size = [], 0
        writer.write_table(pa.Table.from_batches(waiting, SCHEMA), row_group_size=CHUNK)


class LocalRows:
    """The written rows of a matrix, counted in two passes."""

    def __init__(self, folder: Path, destructive: Collection[str], shown: int) -> None:
        """`destructive`: as in SparkRows; `shown`: most rows that `first_rows` can return."""
        self.file = parquet.ParquetFile(folder / FILE)
        self._destroying = pa.array(destructive, pa.string())
        self._sides: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self._kinds: Counter[str] = Counter()
        self._entities: set[tuple[str, str]] = set()
        self._open: dict[str, set[str]] = {}
        self._destroyers: Counter[str] = Counter()
        self._users: set[str] = set()
        self._rows = self._destructive = 0
        first = SCHEMA.empty_table().append_column("destructive", pa.array([], pa.bool_()))
        for chunk in self._chunks(SCHEMA.names):
            self._count(chunk)
            if shown:
                both = pa.concat_tables([first, chunk.drop_columns(list(SIDES))])
                first = both.take(pc.select_k_unstable(both, min(shown, len(both)), _ORDER))
        self._first: list[dict[str, Any]] = first.to_pylist()

    def totals(self) -> Totals:
        """As Rows.totals."""
        return Totals(
            entitlements=self._rows,
            principals=len(self._sides["principals"]),
            entities=len(self._entities),
            operations=len(self._sides["operations"]),
            destructive=self._destructive,
            kinds=tuple(sorted(self._kinds.items(), key=_most_first)),
        )

    def first_rows(self, limit: int) -> list[dict[str, Any]]:
        """As Rows.first_rows."""
        return self._first[:limit]

    def users(self) -> set[str]:
        """As Rows.users."""
        return self._users

    def open_operations(self) -> list[tuple[str, int]]:
        """As Rows.open_operations."""
        return sorted((operation, len(paths)) for operation, paths in self._open.items())

    def destroyers(self, most: int) -> tuple[list[DestructivePrincipal], int]:
        """As Rows.destroyers."""
        named = [name for name, _ in sorted(self._destroyers.items(), key=_most_first)[:most]]
        found: dict[str, tuple[set[tuple[str, str]], set[str], set[str]]] = {
            name: (set(), set(), set()) for name in named
        }
        if named:
            for chunk in self._chunks(["principal", "operation", "type", "path", "via_principal"]):
                selected = chunk.filter(
                    pc.and_(chunk["destructive"], pc.is_in(chunk["principal"], pa.array(named, pa.string())))
                )
                names = ("principal", "type", "path", "operations", "ways")
                for principal, type_, path, operation, way in zip(
                    *(selected[n].to_pylist() for n in names), strict=True
                ):
                    entities, operations, ways_used = found[principal]
                    entities.add((type_, path))
                    operations.add(operation)
                    ways_used.add(way)
        destroyers = [
            DestructivePrincipal(
                principal=principal,
                entities=len(entities),
                operations=tuple(sorted(ops)),
                through=tuple(sorted(ways_used)),
            )
            for principal, (entities, ops, ways_used) in found.items()
        ]
        return destroyers, len(self._destroyers)

    def heat_maps(self) -> tuple[HeatMap, ...]:
        """As Rows.heat_maps."""
        shown = {
            side: [v for v, _ in sorted(counts.items(), key=_most_first)[:SIDE]] for side, counts in self._sides.items()
        }
        omitted = {side: max(0, len(counts) - SIDE) for side, counts in self._sides.items()}
        cells: Counter[tuple[str, str, str]] = Counter()
        for chunk in self._chunks(["principal", "operation", "type", "path", "via_principal"]):
            for row, column in PAIRS:
                selected = chunk.filter(pc.and_(_among(chunk[row], shown[row]), _among(chunk[column], shown[column])))
                for row_value, column_value, count in _counted(selected, [row, column]):
                    cells[f"{row} by {column}", row_value, column_value] += count
        return assembled(shown, omitted, cells)

    def write_csv(self, folder: Path) -> None:
        """Write the rows as CSV, escaped so that a spreadsheet does not read a cell as a formula."""
        folder.mkdir()
        with (folder / "part-00000.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(SCHEMA.names)
            for batch in self.file.iter_batches(CHUNK):
                writer.writerows(map(_cells, batch.to_pylist()))

    def _chunks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Chunks of the rows with `columns`, the values for the heat maps, and `destructive`."""
        for batch in self.file.iter_batches(CHUNK, columns=list(columns)):
            table = pa.Table.from_batches([batch])
            operations = pc.binary_join_element_wise(table["type"], table["operation"], "/").combine_chunks()
            sides = {
                "principals": table["principal"],
                "ways": pc.fill_null(table["via_principal"], ANYONE),
                "operations": operations,
                "entities": _beginning(table["path"].combine_chunks()),
            }
            for name, column in sides.items():
                table = table.append_column(name, column)
            yield table.append_column("destructive", pc.is_in(operations, self._destroying))

    def _count(self, chunk: pa.Table) -> None:
        self._rows += len(chunk)
        for side, counts in self._sides.items():
            for value, count in _counted(chunk, [side]):
                counts[value] += count
        for kind, count in _counted(chunk, ["via_kind"]):
            self._kinds[kind] += count
        self._entities.update(zip(*(column.to_pylist() for column in _distinct(chunk, ["type", "path"])), strict=True))
        self._users.update(user for user in pc.unique(chunk["user"]).to_pylist() if user is not None)
        destroying = chunk.filter(chunk["destructive"])
        self._destructive += len(destroying)
        for principal, count in _counted(destroying, ["principal"]):
            self._destroyers[principal] += count
        opened = chunk.filter(pc.equal(chunk["via_kind"], ANYONE))
        for operation, path in zip(*(c.to_pylist() for c in _distinct(opened, ["operations", "path"])), strict=True):
            self._open.setdefault(operation, set()).add(path)


def _cells(row: Mapping[str, Any]) -> list[str | None]:
    """A row of CSV; links are written without their null fields."""
    links = [{name: value for name, value in link.items() if value is not None} for link in row["via"]]
    via = json.dumps(links, separators=(",", ":"), ensure_ascii=False)
    cells = {**row, "via": via}
    return [no_formula(text) if name in BARE and text else text for name, text in cells.items()]


def _counted(table: pa.Table, keys: list[str]) -> Iterable[tuple[Any, ...]]:
    grouped = table.group_by(keys).aggregate([([], "count_all")])
    return zip(*(grouped[name].to_pylist() for name in (*keys, "count_all")), strict=True)


def _distinct(table: pa.Table, keys: list[str]) -> list[pa.ChunkedArray]:
    grouped = table.group_by(keys).aggregate([])
    return [grouped[name] for name in keys]


def _beginning(paths: pa.Array) -> pa.Array:
    """The first names of each path, by which heat maps group entities."""
    encoded = paths.dictionary_encode()
    short = ["/".join(path.split("/")[:GROUPS]) for path in encoded.dictionary.to_pylist()]
    return pa.array(short, pa.string()).take(encoded.indices)


def _among(column: pa.ChunkedArray, values: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(values, pa.string()))


def _most_first(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]
