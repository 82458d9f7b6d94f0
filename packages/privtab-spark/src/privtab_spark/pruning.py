"""Find the rows of a large state that requests need, before any row is collected.

Requests are read first, for the paths that they name. Then the state is read once: tasks keep the rows about entities that are named or
lie above a named entity, and check other rows that might matter. The rest is often a small part, which is decided like any state that fits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import array_truth
from privtab.engines import TextDictionary
from privtab.ir import Program
from privtab.state import CodedColumn, RowLocation, StateFinding
from privtab_spark import kernel
from privtab_spark.arguments import RequestColumns
from privtab_spark.choose import SMALLER, size_of
from privtab_spark.kernel import Layout, combined_batches, decide_by_kernel, named_paths, readable
from privtab_spark.policies import OpenPolicy
from privtab_spark.portions import kept
from privtab_spark.preflight import check_executors
from privtab_spark.shipping import PackedState, ShippedBytes
from privtab_spark.state.row_checks import each_row
from privtab_spark.state.schemas import entity_column
from privtab_spark.state.tables import packed, unpacked
from privtab_spark.states import batches_of, cache_key, memoised
from privtab_spark.states import readable as readable_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab_spark.choose import Choice, Limits

MOST_BYTES = 1 << 28
"""Most bytes of paths that the driver collects, before paths are dropped that several tasks have."""
ROWS = 1 << 16
"""Rows that are checked at once."""
_ALLOWS = {"effect": "allow"}
"""Cells of rows that deny nothing."""
log = logging.getLogger("privtab.spark")


def decide_pruned(
    request: RequestColumns, policy: OpenPolicy, state: Any, choice: Choice, limits: Limits
) -> DataFrame | None:
    """As `decide_by_kernel`, by the part of the state that the requests need; None if it is no small part, or does not fit either.

    `choice`: says of which tables a part is taken. Raises StateInvalid if an invalid row may affect a denial.
    """
    spark = request.frame.sparkSession
    read = readable_state(policy, state, spark)
    assert read is not None
    check_executors(spark)
    memoised(("part", policy.digest, *cache_key(state)), state, lambda: True)
    rows = sum(read.raw_counts.values())
    paths = _named(request, max(shape.most for shape in policy.vocabulary.shapes.values()))
    if paths is None or (choice.plan == "kernel" and len(paths) * SMALLER > rows):
        return None
    named = PackedState.holding(TextDictionary.of(paths)).ship(spark)
    parts = {
        table: kept(packed(read.raw(table), partial(_needed_rows, policy.as_program, table, named)))
        for table in choice.selected
    }
    counts = {**read.raw_counts, **{table: _total(part, "rows") for table, part in parts.items()}}
    needed = sum(counts.values())
    log.info("decide: the requests need %s of %s rows", f"{needed:,}", f"{rows:,}", extra={"needed": needed})
    if needed > limits.rows or size_of(policy, counts) > limits.size:
        return None
    shipped = PackedState.of(batches_of(policy, read.local(parts))).ship(spark)
    return decide_by_kernel(request, shipped, named=named)


def _named(request: RequestColumns, most: int) -> pa.Array | None:
    """The distinct paths that requests name, and all beginnings of paths with at most `most` names. None if they take too many bytes."""
    columns = [request.columns[name].cast("string").alias(name) for name in Layout.of(request).paths]
    found = kept(packed(request.frame.select(*columns), partial(_paths, most)))
    if _total(found, "bytes") > MOST_BYTES:
        return None
    texts = unpacked(found)
    return pa.chunked_array(
        [CodedColumn.of_texts([""]).array, *([] if texts is None else texts.column("path").chunks)]
    ).unique()


def _total(batches: DataFrame, column: str) -> int:
    """The rows or the bytes of all compressed batches, which are few."""
    return sum(row[0] for row in batches.select(column).collect())


# --- on executors ----------------------------------------------------------------------------------------------------


def _paths(most: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Distinct paths and beginnings of paths, from columns of paths."""
    for part in combined_batches((tuple(batch.columns) for batch in batches), kernel.ROWS):
        columns = (readable(pa.concat_arrays(pieces)) for pieces in zip(*part, strict=True))
        texts = [beginning for column in columns for beginning in _beginnings(column, most)]
        yield pa.RecordBatch.from_arrays([pa.chunked_array(texts, pa.string()).unique()], ["path"])


def _beginnings(paths: pa.Array, most: int) -> Iterator[pa.Array]:
    """The distinct paths, then without their last names, and so on, down to the first name."""
    paths = paths.drop_null().unique()
    yield paths
    paths = paths.filter(pc.less_equal(pc.count_substring(paths, "/"), most))  # one with more names names no entity
    while len(paths := paths.filter(pc.match_substring(paths, "/"))):
        paths = pc.list_element(pc.split_pattern(paths, "/", max_splits=1, reverse=True), 0).unique()
        yield paths


def _needed_rows(
    program: Program, table: str, named: ShippedBytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of a table about named entities; and rows that make the state unusable, for the driver to report.

    The driver checks all of them. Tasks check only rows that do not show which entity they are about, or that may be reported.
    """
    names: list[str] = []
    column = entity_column(table)
    assert column is not None

    def columns_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Array, ...]]:
        for batch in batches:
            names[:] = batch.schema.names
            yield tuple(batch.columns)

    for part in combined_batches(columns_of(batches), ROWS):
        batch = pa.RecordBatch.from_arrays([pa.concat_arrays(pieces) for pieces in zip(*part, strict=True)], names)
        entities = batch.column(column)
        needed = _about_named(entities, named)
        unsure = np.flatnonzero(~(needed | _of_no_harm(program, table, batch)))
        rows = _taken(batch, unsure)
        found, findings = each_row(program, table, {}, dict(zip(names, rows.columns, strict=True)))
        if found is not None:
            raw, valid, columns = found
            own = columns[column]
            about_named = np.append(_about_named(own.array, named), False)[own.codes]
            needed[unsure[raw.numbers[about_named & valid] - 1]] = True
        needed[[unsure[f.place.row - 1] for f in findings if f.stops(program)]] = True
        yield _taken(batch, np.flatnonzero(needed))


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    # Not `pa.array`, which loads pandas.
    return batch.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))


def _about_named(entities: pa.Array, named: ShippedBytes) -> npt.NDArray[np.bool_]:
    """A mask of the texts that are about named entities, or about others with the same hash."""
    return named_paths(named).may_have_paths(entities)


def _of_no_harm(program: Program, table: str, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """A mask of the rows that stop nothing even if they are wrong, and whose text alone names their entity."""
    wrong = StateFinding(place=RowLocation(path="", table=table, row=1), message="", code="S110", row=_ALLOWS)
    if wrong.stops(program) or any(type_.opaque for type_ in program.entities.values()):
        return np.zeros(len(batch), np.bool_)
    cells = [(batch.column(name), text) for name, text in _ALLOWS.items() if name in batch.schema.names]
    alike = [array_truth(pc.is_in(column, CodedColumn.of_texts([text]).array)) for column, text in cells]
    found: npt.NDArray[np.bool_] = np.logical_and.reduce([np.ones(len(batch), np.bool_), *alike])
    return found
