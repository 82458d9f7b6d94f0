"""Check on executors the rows of Spark tables, a batch at a time, using the code for rows of files.

So findings are the same for files and for Spark. Rows with equal deciding cells are judged together, and only rows that need a
finding are read one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as fn

from privtab.base import WINDOW_COLUMNS, Entity, Window
from privtab.ir import Program
from privtab.state import (
    LINK_COLUMNS,
    TABLE_COLUMNS,
    CodedColumn,
    ColumnChecker,
    RawReader,
    RawTable,
    StateFinding,
    UsedParts,
    arrow_cells,
    derived_rows,
)
from privtab_spark.shipping import ShippedBytes, kept
from privtab_spark.state.conflicts import collected_links
from privtab_spark.state.schemas import CANONICAL, FINDING, schema, windows_in
from privtab_spark.state.tables import canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


CheckedRows: TypeAlias = tuple[RawTable, npt.NDArray[np.bool_], Mapping[str, CodedColumn]]
"""Rows, a mask of those that are valid by themselves, and their columns as a valid row has them."""
_FINDINGS = pa.list_(pa.struct([(name, pa.string()) for name in FINDING]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """The rows of a batch that are valid by themselves, and all findings with the cells of their rows as JSON."""

    rows: int
    """The number of valid rows."""
    columns: Mapping[str, CodedColumn]
    """The cells of the valid rows, as in `State`; without `from` and `until` where none has them."""
    findings: Sequence[tuple[str, Sequence[StateFinding]]]


def examined_schema(table: str, window: Sequence[str] = ()) -> str:
    """The columns of `examine`: canonical columns of a valid row; or findings about a row, and its cells as JSON."""
    finding = ", ".join(f"{name}: string" for name in FINDING)
    return f"{schema(table, window)}, `__good` boolean, `__findings` array<struct<{finding}>>, `__row` string"


def examine(
    program: Program, table: str, not_text: Mapping[str, str], places: ShippedBytes | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: check raw rows; the result has the columns of `examined_schema`.

    `not_text`: columns whose cells are not text, with their types. `places`: where entities with flat ids lie; rows about others are
    wrong.
    """
    known = None if places is None else kept(places)
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        checked = check(program, table, not_text, columns, known)
        names = (*CANONICAL[table], *(name for name in columns if name in WINDOW_COLUMNS))
        cells_of_valid = canonical(table, checked.columns)
        valid, found = checked.rows, len(checked.findings)
        no_text, nothing = pa.nulls(valid, pa.string()), pa.nulls(found, pa.string())
        arrays = [pa.concat_arrays([cells_of_valid.get(name, no_text), nothing]) for name in names]
        listed = [[{n: getattr(f, n) for n in FINDING} for f in findings] for _, findings in checked.findings]
        arrays += [
            pa.array([True] * valid + [False] * found),
            pa.concat_arrays([pa.nulls(valid, _FINDINGS), pa.array(listed, _FINDINGS)]),
            pa.array([None] * valid + [cells for cells, _ in checked.findings], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=[*names, "__good", "__findings", "__row"])


def check(
    program: Program,
    table: str,
    not_text: Mapping[str, str],
    columns: Mapping[str, Any],
    places: Mapping[str, str] | None = None,
) -> CheckedBatch:
    """Check one batch of raw rows, given by column as Arrow arrays of strings."""
    found, findings = each_row(program, table, not_text, columns, places)
    rows = 0
    texts: Mapping[str, CodedColumn] = {}
    if found is not None:
        _, valid, of_rows = found
        rows, texts = int(valid.sum()), {c: t.rows(valid) for c, t in of_rows.items()}
    by_row: dict[int, list[StateFinding]] = {}
    for finding in findings:
        by_row.setdefault(finding.place.row - 1, []).append(finding)
    numbers = pa.array(list(by_row), pa.int64())
    cells = {name: arrow_cells(column.take(numbers)) for name, column in columns.items()}
    named = [_json(dict(zip(cells, row, strict=True))) for row in zip(*cells.values(), strict=True)]
    return CheckedBatch(rows=rows, columns=texts, findings=list(zip(named, by_row.values(), strict=True)))


def each_row(
    program: Program,
    table: str,
    not_text: Mapping[str, str],
    columns: Mapping[str, Any],
    places: Mapping[str, str] | None = None,
) -> tuple[CheckedRows | None, list[StateFinding]]:
    """The complete rows of a batch, each checked alone, None if there are none; and all findings, with the number of the row in the batch."""
    checker = _checker(_ProgramKey(program))
    reader = RawReader()
    raw = read_rows(reader, "", table, not_text, columns)
    if raw is None:
        return None, list(reader.findings)
    valid, texts, findings = checker.each_row(raw, places)
    return (raw, valid, texts), [*reader.findings, *findings]


def read_rows(
    reader: RawReader, path: str, table: str, not_text: Mapping[str, str], columns: Mapping[str, Any]
) -> RawTable | None:
    """The complete rows, by columns, or one by one if a text is not UTF-8; None if there are none. `path`: their source in findings."""
    coded: dict[str, CodedColumn] = {}
    try:
        for name, column in () if not_text else columns.items():
            coded[name] = CodedColumn.of(column)
            coded[name].array.validate(full=True)
    except pa.ArrowInvalid:
        coded = {}
    if coded:
        return RawTable.read(reader, path, table, coded)
    optional = (*TABLE_COLUMNS[table].optional, *WINDOW_COLUMNS)
    of_kinds = [f"a {not_text[name]}" if name in not_text else None for name in columns]
    for number, row in enumerate(zip(*map(arrow_cells, columns.values(), of_kinds), strict=True), start=1):
        cells: dict[str, object] = {
            name: value for name, value in zip(columns, row, strict=True) if value is not None or name not in optional
        }
        reader.row(path, table, number, None, cells)
    rows = reader.rows.get(table)
    return RawTable.of(rows) if rows else None


def _json(cells: Mapping[str, object]) -> str:
    return json.dumps(
        {name: str(value) for name, value in cells.items() if value is not None and value != ""},
        ensure_ascii=False,
        separators=(",", ":"),
    )


class _ProgramKey:
    """A program as a cache key, equal for equal policies, so that a worker creates one checker for all batches."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.key = repr((program.system, program.version, program.entities, program.privileges, program.aliases,
                         program.sets, program.roles, program.semantics, program.attributes, UsedParts.of(program)))  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ProgramKey) and other.key == self.key


@lru_cache(maxsize=4)
def _checker(known: _ProgramKey) -> ColumnChecker:
    return ColumnChecker.alone(known.program)


Keys: TypeAlias = Callable[[Entity], list[str]]


def closed(
    kinds: Sequence[Literal["groups", "roles"]], keys: Keys, tables: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The tables with the rows that follow. A table may be missing.

    `kinds`: the hierarchy of the policy. `keys`: the keys on the path of an entity; it is sent to the workers.
    """
    found = dict(tables)
    for table, member, container, prefix in map(LINK_COLUMNS.__getitem__, kinds):
        if table in tables:
            links = collected_links(tables[table], member, prefix)
            found[table] = _longer(table, tables[table], container, prefix, links, keys)
    return found


def _longer(table: str, rows: DataFrame, container: str, prefix: str, links: list[Any], keys: Keys) -> DataFrame:
    if not links:
        return rows
    inner = sorted({str(link[0]).removeprefix(prefix) for link in links})
    window = windows_in(rows)
    columns = [*CANONICAL[table], *window]
    linked = [tuple(link[name] for name in columns) for link in links]
    worker = partial(_derived, table, linked, keys, columns)
    own = rows.select(*(f"`{name}`" for name in columns))
    some = own.filter(fn.col(container).isin(inner))
    return own.unionAll(some.mapInArrow(worker, schema(table, window))).distinct()


def _derived(
    table: str, links: list[tuple[Any, ...]], keys: Keys, columns: list[str], batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: the rows that follow from the rows of a table."""
    read = partial(_row, table)
    follow = derived_rows(table, map(read, links), keys)
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        found = [_cells(table, cells, window, len(columns)) for cells, window in follow(map(read, rows))]
        arrays = [pa.array([row[at] for row in found], pa.string()) for at in range(len(columns))]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def _row(table: str, row: tuple[Any, ...]) -> tuple[tuple[str | None, ...], Window]:
    """A row as `State` has it, from canonical columns, and from `from` and `until` if the table has them."""
    width = len(CANONICAL[table])
    window = Window.between(*row[width:] or (None, None))
    if table == "memberships":
        return row[:width], window
    principal, role, type_, path = row[:width]
    return (principal, role, None if type_ is None else f"{type_}:{path}"), window


def _cells(table: str, cells: tuple[str | None, ...], window: Window, columns: int) -> tuple[str | None, ...]:
    """A row with canonical columns, in as many columns as its table has."""
    if table == "assignments":
        scope = cells[-1]
        cells = (*cells[:-1], *((None, None) if scope is None else scope.split(":", 1)))
    return (*cells, *window.cells()[: columns - len(CANONICAL[table])])
