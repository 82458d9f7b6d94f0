"""The vectorised plan: the state's arrays go to the executors once, rows come to them in Arrow batches and go back as one byte each.

The driver packs program and arrays into one flat file. A worker opens it once, all its tasks share it, and nothing that a
row brings is touched by Python: see `engines/kernel.py`. Only the columns of the request travel; the others stay in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.engines.columns import REASONS
from privtab.engines.dedupe import distinct
from privtab.spark.arguments import RequestColumns
from privtab.spark.following import Followed, current
from privtab.spark.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab.engines.batches import Batches

ROWS = 1 << 17
"""Rows that are decided at once. Spark's own batches of 10,000 are gathered: what is looked up by text costs by the batch."""
BYTES = 64 << 20
"""Of Arrow memory at which gathering ends earlier."""
NOT_GRANTED = "not granted"
UNDECIDED = "not decided"
CODE = "__privtab"
NO_ANSWER = "no answer"
CODES = (None, NOT_GRANTED, *REASONS[1:], NO_ANSWER)
"""What the byte of a row says: 0 is yes, all others are no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the columns that come to a worker are, by canonical name in their order, and what is the same for all rows."""

    columns: tuple[str, ...]
    constants: Mapping[str, str | bool]
    slots: tuple[str, ...]
    flags: tuple[str, ...]
    rows: int = ROWS


def decide_by_kernel(
    asked: RequestColumns, shipped: Shipped | Followed, *, rows: int = ROWS
) -> tuple[DataFrame, Column, Column]:
    """The frame with one more column, `asked.code`, and whether and why by it."""
    layout = Layout(
        columns=tuple(asked.columns),
        constants=dict(asked.constants),
        slots=asked.slots,
        flags=asked.flags,
        rows=rows,
    )
    return _coded(asked, shipped, layout), *told(asked)


def told(asked: RequestColumns) -> tuple[Column, Column]:
    """Whether and why, by the column of codes."""
    code = F.col(asked.code)
    allowed = F.coalesce(code == 0, F.lit(col=False))
    words = F.array(*(F.lit(text) for text in CODES))
    return allowed, F.when(code.isNull(), UNDECIDED).otherwise(F.get(words, code.cast("int")))


def _coded(asked: RequestColumns, shipped: Shipped | Followed, layout: Layout) -> DataFrame:
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        return _mapped(asked, shipped, layout)
    # Not deterministic, as far as the optimiser may know: else a filter on the answer would be pushed below it as a second
    # copy, and every row decided twice.
    decide = arrow_udf(_columns_function(shipped, layout), "tinyint").asNondeterministic()  # type: ignore[call-overload]
    return asked.frame.select("*", decide(*asked.columns.values()).alias(asked.code))


def _mapped(asked: RequestColumns, shipped: Shipped | Followed, layout: Layout) -> DataFrame:
    """For Spark 4.0, which has no Arrow functions of columns: rows travel whole."""
    return mapped(asked, lambda kept: _batches_function(shipped, layout, kept))


def mapped(asked: RequestColumns, function: Callable[[int], Callable[[Any], Any]]) -> DataFrame:
    """The frame with its codes, by a function for `mapInArrow` that is made from how many columns come before the request's."""
    from pyspark.sql.types import ByteType, StructField, StructType

    names = list(asked.frame.columns)
    # Names may repeat in a frame; in Arrow they may not. What is told of a column stays: by it `char(n)` is known.
    kept = [
        StructField(f"c{at}", f.dataType, nullable=True, metadata=f.metadata) for at, f in enumerate(asked.frame.schema)
    ]
    schema = StructType([*kept, StructField(CODE, ByteType(), nullable=True)])
    return asked.beside().mapInArrow(function(len(names)), schema).toDF(*names, asked.code)


def _columns_function(
    shipped: Shipped | Followed, layout: Layout
) -> Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]:
    # Spark reads these annotations.
    def decide(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        from privtab.spark.kernel import answered

        yield from answered(shipped, layout, columns)

    return decide


def _batches_function(
    shipped: Shipped | Followed, layout: Layout, kept: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from privtab.spark.kernel import answered_batches

        yield from answered_batches(shipped, layout, kept, batches)

    return decide


# --- on executors ----------------------------------------------------------------------------------------------------


def answered(
    shipped: Shipped | Followed, layout: Layout, columns: Iterable[tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    """The codes of all rows; `columns` are the arrays of one batch after another."""
    for part in gathered(columns, layout.rows):
        yield _codes(current(shipped), layout, [pa.concat_arrays(pieces) for pieces in zip(*part, strict=True)])


def answered_batches(
    shipped: Shipped | Followed, layout: Layout, kept: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows as they came, without the columns of the request, and with their codes."""
    for part in gathered((tuple(batch.columns) for batch in batches), layout.rows):
        columns = [pa.concat_arrays(pieces) for pieces in zip(*part, strict=True)]
        names = [*(f"c{at}" for at in range(kept)), CODE]
        yield pa.RecordBatch.from_arrays([*columns[:kept], _codes(current(shipped), layout, columns[kept:])], names)


def gathered(batches: Iterable[tuple[pa.Array, ...]], rows: int) -> Iterator[list[tuple[pa.Array, ...]]]:
    """Batches put together to about as many rows, unless they are large."""
    part: list[tuple[pa.Array, ...]] = []
    count = size = 0
    for batch in batches:
        part.append(batch)
        count += len(batch[0])
        size += sum(column.nbytes for column in batch)
        if count >= rows or size >= BYTES:
            yield part
            part, count, size = [], 0, 0
    if part:
        yield part


def _codes(batches: Batches, layout: Layout, columns: list[pa.Array]) -> pa.Array:
    columns = [readable(column) for column in columns]
    once = distinct(columns) if not any(pa.types.is_nested(column.type) for column in columns) else None
    if once is None:
        return pa.array(_decided(batches, layout, columns))
    first, inverse = once
    rows = pa.array(first)
    return pa.array(_decided(batches, layout, [column.take(rows) for column in columns])[inverse])


def _decided(batches: Batches, layout: Layout, columns: list[pa.Array]) -> np.ndarray[Any, np.dtype[np.int8]]:
    given: dict[str, Any] = {**layout.constants, **dict(zip(layout.columns, columns, strict=True))}
    answers = batches.decide_columns(
        given["user"],
        given["path"],
        action=given["action"],
        type=given["type"],
        with_={slot: (given[f"with_{slot}_type"], given[f"with_{slot}_path"]) for slot in layout.slots},
        flags={flag: given[f"flag_{flag}"] for flag in layout.flags},
        groups=given.get("groups"),
    )
    return np.where(answers.allowed & (answers.reasons == 0), 0, answers.reasons + 1).astype(np.int8)


def readable(column: pa.Array) -> pa.Array:
    """The column with null in place of what is no UTF-8: Spark takes any bytes for text."""
    listed = pa.types.is_list(column.type)
    texts = column.flatten() if listed else column
    if not pa.types.is_string(texts.type):
        return column
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        if listed:
            bare = column.cast(pa.list_(pa.binary())).to_pylist()
            return pa.array([row and [_text(value) for value in row] for row in bare], column.type)
        return pa.array([_text(value) for value in column.cast(pa.binary()).to_pylist()], pa.string())
    return column


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
