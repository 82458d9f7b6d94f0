"""Build the `people` part of a sharded state: its rows are brought to one task, which makes it by the code for files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from privtab import arrow
from privtab.bundle.archive import archive, json_bytes
from privtab.bundle.pack import shard_files
from privtab.ir.nodes import Program
from privtab.moments import WINDOW
from privtab.spark.state.files import Root
from privtab.spark.state.schemas import CANONICAL
from privtab.spark.state.tables import from_arrow
from privtab.state.coded import CodedColumn
from privtab.state.nodes import State
from privtab.state.rows import ColumnRows
from privtab.state.shards import PEOPLE, part_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CELLS = ("a", "b", "c", "d", "e")
GRANTED = "granted"
"""The part with every principal that a grant or an owner names."""


def written_people(
    program: Program,
    tables: Mapping[str, DataFrame],
    granted: DataFrame,
    shards: Sequence[str],
    root: Root,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the bundle of the part in one task, and return its report.

    `tables`: valid rows without duplicates of the tables that have any. `granted`: one column with every principal that a grant or
    an owner names. `more`: additional metadata, which do not affect the revision.
    """
    # A dummy row: without any rows, Spark would start no worker, and the bundle would not be written.
    parts = [_cells("", granted.sparkSession.range(1).select(fn.lit("").alias("a")), ("a",))]
    parts.append(_cells(GRANTED, granted, tuple(granted.columns)))
    for table, rows in tables.items():
        # The attributes of entities are in their shards.
        own = rows.filter("type is null") if table == "attributes" else rows
        parts.append(_cells(table, own, CANONICAL[table]))
    rows = reduce(lambda first, second: first.unionAll(second), parts)
    worker = partial(_write, program, list(shards), root, more)
    (row,) = rows.coalesce(1).mapInArrow(worker, "report string").collect()
    report: dict[str, Any] = json.loads(row["report"])
    return report


def _cells(part: str, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows of a table in the form in which those of all tables can be united."""
    none = fn.lit(None).cast("string")
    listed = [*(fn.col(name) for name in names), *[none] * (len(CELLS) - len(names))]
    edges = [fn.col(name) if name in rows.columns else none.alias(name) for name in WINDOW]
    return rows.select(
        fn.lit(part).alias("part"), *(cell.alias(name) for name, cell in zip(CELLS, listed, strict=True)), *edges
    )


def _write(
    program: Program, shards: list[str], root: Root, more: Mapping[str, Any], batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow` over one partition: write the bundle from the rows; the result is the report."""
    part = part_text(program, people_state(program, pa.Table.from_batches(batches)), PEOPLE, shards)
    assert part is not None
    content = archive(shard_files(program.system, part, {"shards": len(shards), **more}))
    mark = f"-{hashlib.sha256(json_bytes(more)).hexdigest()[:10]}" if more else ""
    file = f"bundles/people-{part.revision}{mark}.tar.gz"
    root.write(file, content)
    report = {
        "revision": part.revision, "bytes": len(content), "json_bytes": len(part.text),
        "sha256": hashlib.sha256(content).hexdigest(), "principals": part.users, "file": file,
        **({"windows": True} if part.windows else {}), **({"further": list(part.further)} if part.further else {}),
    }  # fmt: skip
    yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})


def people_state(program: Program, table: pa.Table) -> State:
    """The state of united rows; what grants and owners name is owners of an entity, which does not matter for the part."""
    tables: dict[str, Any] = {}
    for name in (*CANONICAL, GRANTED):
        rows = table.filter(pc.equal(table.column("part"), name))
        names = CANONICAL.get(name, (GRANTED,))
        window = WINDOW if any(rows.column(edge).null_count < len(rows) for edge in WINDOW) else ()
        tables[name] = rows.select([*CELLS[: len(names)], *window]).rename_columns([*names, *window])
    who = CodedColumn.of(tables.pop(GRANTED).column(GRANTED))
    owned = arrow.texts([f"{next(iter(program.entities))}:-"] if len(who) else [])
    entity = CodedColumn(np.zeros(len(who), np.int64), owned)
    return replace(from_arrow(tables), owners=ColumnRows("owners", {"entity": entity, "owner": who}))
