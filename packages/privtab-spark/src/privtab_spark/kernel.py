"""The vectorised plan: arrays of the state are sent to the executors once; rows arrive in Arrow batches and return one byte each.

The driver packs the program and the arrays into one flat file. A worker opens it once for all its tasks, and no row is handled by
Python code: see `engines/kernel.py`. Only the columns of the request are sent to the workers; the others stay in the JVM.
Every worker imports this module, and therefore nothing that only drivers need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.engines import TextDictionary, Unevaluated
from privtab_spark.attribute_columns import AttributeColumn, values
from privtab_spark.distinct import distinct_requests
from privtab_spark.frames import flag_column
from privtab_spark.shipping import ShippedBytes, kept, loaded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab.engines import Batches
    from privtab_spark.arguments import RequestColumns
    from privtab_spark.refresh import FollowedState

ROWS = 1 << 18
"""Rows that are decided at once. Spark's batches of 10,000 are combined, because looking up strings has a cost for each batch."""
BYTES = 64 << 20
"""Bytes of Arrow memory at which batches are no longer combined."""
LARGEST_MAPPED = (1 << 25) - (1 << 13)
"""Bytes of the largest block, less its header, from which glibc learns how much freed memory to keep."""
NOT_GRANTED = "not granted"
UNDECIDED = "not decided"
CODE = "__privtab"
NO_ANSWER = "no answer"
CHANGED = "changed between reads"
"""The reason of a row that was missing when a large state was divided: the rows are read twice and may have changed."""
CODES = (None, NOT_GRANTED, *(reason.text for reason in Unevaluated if reason), NO_ANSWER, CHANGED)
"""Reasons by the byte of a row: 0 is an allow, all others are denials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns that a worker receives, by canonical name and in order, and the constants of all rows."""

    columns: tuple[str, ...]
    constants: Mapping[str, str | bool]
    slots: tuple[str, ...]
    flags: tuple[str, ...]
    given: tuple[AttributeColumn, ...] = ()
    rows: int = ROWS
    named: ShippedBytes | None = None
    """If the state is a part that was made for some paths: a TextDictionary of these and of all that they begin with."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The columns with the paths of objects."""
        return ("path", *(f"with_{slot}_path" for slot in self.slots))

    @classmethod
    def of(cls, request: RequestColumns, rows: int = ROWS, named: ShippedBytes | None = None) -> Layout:
        """The layout of requests."""
        return cls(
            columns=tuple(request.columns),
            constants=dict(request.constants),
            slots=request.slots,
            flags=request.flags,
            given=request.given,
            rows=rows,
            named=named,
        )


def decide_by_kernel(
    request: RequestColumns,
    shipped: ShippedBytes | FollowedState,
    *,
    rows: int = ROWS,
    named: ShippedBytes | None = None,
) -> DataFrame:
    """The frame with the additional column `request.code`, as `answer_columns` reads it.

    `named`: the paths that the state was made for; a request of another one is denied.
    """
    layout = Layout.of(request, rows, named)
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:  # Spark 4.0: whole rows are sent to the workers
        return mapped(request, partial(current_codes, shipped, layout), rows)
    # Declared nondeterministic: otherwise the optimiser would push a filter on the answer down as a second copy of the
    # function, and every row would be decided twice.
    decide = arrow_udf(_columns_function(shipped, layout), "tinyint").asNondeterministic()  # type: ignore[call-overload]
    return request.frame.select("*", decide(*request.columns.values()).alias(request.code))


def answer_columns(request: RequestColumns) -> tuple[Column, Column]:
    """The columns `allowed` and `reason`, computed from the column of codes."""
    code = F.col(request.code)
    allowed = F.coalesce(code == 0, F.lit(col=False))
    words = F.array(*(F.lit(text) for text in CODES))
    return allowed, F.when(code.isNull(), UNDECIDED).otherwise(F.get(words, code.cast("int")))


def mapped(request: RequestColumns, decide: Callable[[list[pa.Array]], pa.Array], rows: int) -> DataFrame:
    """The frame with its codes. `decide`: gives the codes of requests in columns; `rows`: the number of rows decided at once, about."""
    from pyspark.sql.types import ByteType, StructField, StructType

    names = list(request.frame.columns)
    # Names may repeat in a frame, but not in Arrow. Metadata is kept, because it identifies `char(n)` columns.
    fields = [
        StructField(f"c{number}", f.dataType, nullable=True, metadata=f.metadata)
        for number, f in enumerate(request.frame.schema)
    ]
    schema = StructType([*fields, StructField(CODE, ByteType(), nullable=True)])
    work = partial(answered_batches, decide, rows, len(names))
    return request.with_canonical_columns().mapInArrow(work, schema).toDF(*names, request.code)


def _columns_function(
    shipped: ShippedBytes | FollowedState, layout: Layout
) -> Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]:
    # Spark reads these annotations.
    def decide(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        from privtab_spark.kernel import decided_codes

        yield from decided_codes(shipped, layout, columns)

    return decide


# --- on executors ----------------------------------------------------------------------------------------------------


def decided_codes(
    shipped: ShippedBytes | FollowedState, layout: Layout, columns: Iterable[tuple[pa.Array, ...]]
) -> Iterator[pa.Array]:
    """The codes of all rows; `columns` has the arrays of each batch."""
    for part in combined_batches(columns, layout.rows):
        yield current_codes(shipped, layout, [pa.concat_arrays(pieces) for pieces in zip(*part, strict=True)])


def current_codes(shipped: ShippedBytes | FollowedState, layout: Layout, columns: list[pa.Array]) -> pa.Array:
    """The codes of requests in the columns of a layout, by the current state."""
    if isinstance(shipped, ShippedBytes):
        return codes(loaded(shipped), layout, columns)
    from privtab_spark.refresh import current_engine

    return codes(current_engine(shipped), layout, columns)


def answered_batches(
    decide: Callable[[list[pa.Array]], pa.Array], rows: int, column_count: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The input rows with the columns of the request replaced by a code. `rows`: how many are decided at once, about."""
    names = [*(f"c{number}" for number in range(column_count)), CODE]
    for part in combined_batches((tuple(batch.columns) for batch in batches), rows):
        columns = [pa.concat_arrays(pieces) for pieces in zip(*part, strict=True)]
        yield pa.RecordBatch.from_arrays([*columns[:column_count], decide(columns[column_count:])], names)


def combined_batches(batches: Iterable[tuple[pa.Array, ...]], rows: int) -> Iterator[list[tuple[pa.Array, ...]]]:
    """Combine batches to about `rows` rows, fewer if they exceed BYTES."""
    _keep_freed_memory()
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


def _keep_freed_memory() -> None:
    """Let the allocator keep the memory of a batch for the next one, which would otherwise take thousands of page faults.

    glibc keeps at most twice the size of the largest mapped block that was ever freed (mallopt(3), M_MMAP_THRESHOLD).
    """
    np.empty(LARGEST_MAPPED, np.uint8)  # never touched, so it costs no memory


def codes(batches: Batches, layout: Layout, columns: list[pa.Array]) -> pa.Array:
    """The codes of requests in the columns of a layout."""
    columns = [readable(column) for column in columns]
    distinct_rows = (
        distinct_requests(columns) if not any(pa.types.is_nested(column.type) for column in columns) else None
    )
    if distinct_rows is None:
        return pa.array(_decided(batches, layout, columns))
    first, inverse = distinct_rows
    rows = pa.array(first)
    return pa.array(_decided(batches, layout, [column.take(rows) for column in columns])[inverse])


def _decided(batches: Batches, layout: Layout, columns: list[pa.Array]) -> np.ndarray[Any, np.dtype[np.int8]]:
    cells: dict[str, Any] = {**layout.constants, **dict(zip(layout.columns, columns, strict=True))}
    answers = batches.decide_columns(
        cells["user"],
        cells["path"],
        action=cells["action"],
        type=cells["type"],
        with_={slot: (cells[f"with_{slot}_type"], cells[f"with_{slot}_path"]) for slot in layout.slots},
        flags={flag: cells[flag_column(flag)] for flag in layout.flags},
        groups=cells.get("groups"),
        active_roles=cells.get("active_roles"),
        attributes=values(layout.given, cells),
    )
    found = np.where(answers.allowed & (answers.reasons == 0), 0, answers.reasons + 1).astype(np.int8)
    if layout.named is not None:
        named = named_paths(layout.named)
        for name in layout.paths:
            found[(named.find(cells[name].fill_null("")) < 0) & (found <= 1)] = CODES.index(CHANGED)
    return found


def named_paths(shipped: ShippedBytes) -> TextDictionary:
    """The paths that a part of a state was made for."""
    found: TextDictionary = kept(shipped)
    return found


def readable(column: pa.Array) -> pa.Array:
    """The column with null in place of invalid UTF-8: Spark accepts any bytes as a string."""
    is_list = pa.types.is_list(column.type)
    texts = column.flatten() if is_list else column
    if not pa.types.is_string(texts.type):
        return column
    data = texts.buffers()[2]
    if data is None or not data.size or np.frombuffer(data, np.uint8).max() < 128:  # all at once, not text by text
        return column
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        if is_list:
            byte_lists = column.cast(pa.list_(pa.binary())).to_pylist()
            return pa.array([row and [_text(value) for value in row] for row in byte_lists], column.type)
        return pa.array([_text(value) for value in column.cast(pa.binary()).to_pylist()], pa.string())
    return column


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
