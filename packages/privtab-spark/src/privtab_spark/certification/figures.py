"""Write the rows of a matrix, and count them: the figures of a certification."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from privtab.base import PrivtabError, no_formula
from privtab_analysis.heat_map import HeatMap
from privtab_spark.matrix import ANYONE, SCHEMA, Matrix

CHUNK = 1 << 20
"""Number of rows that are written and counted at once."""
ENTITIES = 256
"""Number of entities that are computed at once."""
_ORDER = [("destructive", "descending"), *((name, "ascending") for name in ("principal", "path", "type", "operation"))]
_GROUPED = ("principal", "operation", "type", "path", "via_principal")
"""The columns by which rows are grouped."""
FILE = "part-00000.parquet"
SIDE = 30
"""Most rows, and most columns, of a heat map."""
GROUPS = 2
"""Number of names of a path by which heat maps group entities."""
SIDES = ("principals", "ways", "operations", "entities")
PAIRS = tuple((row, column) for row in ("principals", "ways") for column in ("operations", "entities"))
"""The rows and the columns of each heat map."""
BARE = ("user", "path")
"""Columns whose cells begin with a name from the state; the others begin with a fixed word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a matrix."""

    entitlements: int
    principals: int
    entities: int
    operations: int
    destructive: int
    kinds: tuple[tuple[str, int], ...]
    """Number of entitlements by kind of source, the most frequent first."""


class DestructivePrincipal(NamedTuple):
    """A principal with destructive operations: on how many entities, which operations, and through which principals."""

    principal: str
    entities: int
    operations: tuple[str, ...]
    through: tuple[str, ...]


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


class WrittenRows:
    """The written rows of a matrix, by this process or by Spark, counted in passes over the files."""

    def __init__(self, folder: Path, destructive: Collection[str], shown: int) -> None:
        """`destructive`: the operations that destroy something, each as `table/drop`; `shown`: how many rows are in `first`."""
        self._files = sorted(folder.glob("*.parquet"))
        self._destroying = pa.array(destructive, pa.string())
        self._sides: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
        self._kinds: Counter[str] = Counter()
        self._entities: set[tuple[str, str]] = set()
        self._open: dict[str, set[str]] = {}
        self._destroyers: Counter[str] = Counter()
        self.users: set[str] = set()
        """The users with at least one entitlement."""
        self._rows = self._destructive = 0
        first = SCHEMA.empty_table().append_column("destructive", pa.array([], pa.bool_()))
        for chunk in self._chunks(SCHEMA.names):
            self._count(chunk)
            if shown:
                both = pa.concat_tables([first, chunk.drop_columns(list(SIDES))])
                first = both.take(pc.select_k_unstable(both, min(shown, len(both)), _ORDER))
        self.first: list[dict[str, Any]] = first.to_pylist()
        """The rows that the page shows: destructive operations first, then by principal and entity."""

    def totals(self) -> Totals:
        """The totals of all rows."""
        return Totals(
            entitlements=self._rows,
            principals=len(self._sides["principals"]),
            entities=len(self._entities),
            operations=len(self._sides["operations"]),
            destructive=self._destructive,
            kinds=tuple(sorted(self._kinds.items(), key=_most_first)),
        )

    def open_operations(self) -> list[tuple[str, int]]:
        """Operations that require nothing, each with the number of paths on which it is allowed."""
        return sorted((operation, len(paths)) for operation, paths in self._open.items())

    def destroyers(self, most: int) -> tuple[list[DestructivePrincipal], int]:
        """The principals with destructive operations, at most `most`, by falling number of rows; and their total number."""
        named = [name for name, _ in sorted(self._destroyers.items(), key=_most_first)[:most]]
        found: dict[str, tuple[set[tuple[str, str]], set[str], set[str]]] = {
            name: (set(), set(), set()) for name in named
        }
        for chunk in self._chunks(_GROUPED) if named else ():
            selected = chunk.filter(pc.and_(chunk["destructive"], _among(chunk["principal"], named)))
            columns = (selected[n].to_pylist() for n in ("principal", "type", "path", "operations", "ways"))
            for principal, type_, path, operation, way in zip(*columns, strict=True):
                entities, operations, ways_used = found[principal]
                entities.add((type_, path))
                operations.add(operation)
                ways_used.add(way)
        destroyers = [
            DestructivePrincipal(principal, len(entities), tuple(sorted(operations)), tuple(sorted(ways_used)))
            for principal, (entities, operations, ways_used) in found.items()
        ]
        return destroyers, len(self._destroyers)

    def heat_maps(self) -> tuple[HeatMap, ...]:
        """Entitlements of principals, and through principals, by operation and by entity; only the largest rows and columns."""
        shown = {
            side: [v for v, _ in sorted(counts.items(), key=_most_first)[:SIDE]] for side, counts in self._sides.items()
        }
        omitted = {side: max(0, len(counts) - SIDE) for side, counts in self._sides.items()}
        cells: Counter[tuple[str, str, str, str]] = Counter()
        for chunk in self._chunks(_GROUPED):
            for row, column in PAIRS:
                selected = chunk.filter(pc.and_(_among(chunk[row], shown[row]), _among(chunk[column], shown[column])))
                for row_value, column_value, count in _counted(selected, [row, column]):
                    cells[row, column, row_value, column_value] += count
        return tuple(
            HeatMap(
                name=f"{row} by {column}",
                rows=tuple(shown[row]),
                columns=tuple(shown[column]),
                cells=tuple(tuple(cells[row, column, r, c] for c in shown[column]) for r in shown[row]),
                sums=tuple(self._sides[row][r] for r in shown[row]),
                left_out=(omitted[row], omitted[column]),
            )
            for row, column in PAIRS
        )

    def write_csv(self, folder: Path) -> None:
        """Write the rows as CSV, escaped so that a spreadsheet does not read a cell as a formula."""
        folder.mkdir()
        with (folder / "part-00000.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(SCHEMA.names)
            for batch in self._batches(SCHEMA.names):
                writer.writerows(map(_cells, batch.to_pylist()))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            yield from parquet.ParquetFile(file).iter_batches(CHUNK, columns=list(columns))

    def _chunks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Chunks of the rows with `columns`, the values for the heat maps, and `destructive`."""
        for batch in self._batches(columns):
            table = pa.Table.from_batches([batch]).cast(pa.schema([SCHEMA.field(name) for name in columns]))
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
        self.users.update(user for user in pc.unique(chunk["user"]).to_pylist() if user is not None)
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
