"""Read and replay logs on Spark: each file is parsed and decided by one task, with the same functions as on one machine."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)
from pyspark.sql.pandas.types import from_arrow_schema

from privtab_logs import distinct, row_use
from privtab_logs.deciding import hidden_by_mask
from privtab_logs.moments import Moments
from privtab_logs.reading import batches_of
from privtab_logs.repeated import Repeats
from privtab_logs.replaying import QUESTIONS, Replay, replay
from privtab_logs.schema import DAMAGED, SCHEMA, Reading
from privtab_spark.packed_values import digest, packed
from privtab_spark.shipping import PackedState, WorkerCache, contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab.ir import Program
    from privtab_logs.row_use import Observed, Unused
    from privtab_spark.shipping import ShippedBytes

ACCOUNT = "account"
"""The kind of the row in which a task tells what else it found."""
_READ = ("_metadata", "_common_metadata")
"""Names that Spark reads all the same."""
_FILES = "path string, modificationTime timestamp, length long, content binary"
_OPENED: WorkerCache[str, Moments] = WorkerCache()


def read(spark: SparkSession, logs: Iterable[str], *, stream: bool = False) -> DataFrame:
    """The decisions of logs, as the schema; entries and files that cannot be read are rows with a `problem` and a `position` alone.

    `logs`: files or folders, by any path that Spark reads. `stream`: files that appear in one folder, as a streaming DataFrame, without those
    whose names begin with `_` or `.`.
    """
    listed = list(logs)
    rows = _files(spark, listed, stream=stream).mapInArrow(_rows, from_arrow_schema(SCHEMA))
    hidden = Reading(most_places=None)
    if not stream:
        _note_hidden(listed, hidden)
    return rows.union(spark.createDataFrame(pa.Table.from_batches(_damaged(hidden), SCHEMA))) if hidden.places else rows


def replay_files(spark: SparkSession, logs: Iterable[str], moments: Moments, *, system: str | None = None) -> Replay:
    """Replay logs as `replaying.replay`. What `moments` opens, such as a registry, must be in reach of the executors."""
    listed, content = list(logs), packed(cloudpickle.dumps(moments.closed()))  # type: ignore[no-untyped-call]
    shipped = PackedState(digest=digest(content), content=content).ship(spark)
    found = _files(spark, listed).mapInArrow(
        partial(_replayed, shipped=shipped, system=system), from_arrow_schema(QUESTIONS)
    )
    merged = Replay(reading=Reading())
    merged.take(found.toArrow().cast(QUESTIONS), ACCOUNT)
    _note_hidden(listed, merged.reading)
    return merged


def unused(
    spark: SparkSession,
    logs: Iterable[str],
    program: Program,
    observed: Observed,
    *,
    system: str | None = None,
    reading: Reading | None = None,
) -> Unused:
    """Find rows and rights that nobody needs, as `row_use.unused`: Spark finds the distinct decisions, the driver looks at these.

    `reading`: takes the account of what else was there. Raises UsageError if the log has no decision of the policy with a time.
    """
    listed, account = list(logs), Reading() if reading is None else reading
    asked = _files(spark, listed).mapInArrow(
        partial(_distinct_questions, package=system or program.system, hides=hidden_by_mask(program)),
        from_arrow_schema(distinct.QUESTIONS),
    )
    how = {"sum": F.sum, "min": F.min, "max": F.max}
    merged = asked.groupBy(*distinct.KEYS).agg(*(how[by](name).alias(name) for name, by in distinct.HOW))
    table, found = merged.toArrow().cast(distinct.QUESTIONS), distinct.Log()
    told = table["requests"].is_null()
    for part in map(json.loads, table["more"].filter(told).to_pylist()):
        account.add(part["read"])
        found.add(part)
    found.know(table.filter(pc.invert(told)).sort_by([(name, "ascending") for name in distinct.KEYS]), program)
    _note_hidden(listed, account)
    return row_use.unused(program, observed, found)


def _note_hidden(logs: Iterable[str], reading: Reading) -> None:
    """Note what Spark leaves out without a word: files and folders whose names begin with `_` or `.`; of this machine's files alone."""
    for log in logs:
        path = log.removeprefix("file://").removeprefix("file:")
        if ":" in path.partition("/")[0]:
            reading.other["names that begin with `_` or `.` were not looked for elsewhere than on this machine"] += 1
            continue
        for found in sorted(glob(path, include_hidden=True)):  # noqa: PTH207  (a whole path may be a pattern)
            for hidden in _hidden(Path(found)):
                reading.damage(f"{hidden.resolve()}:0", "not read: Spark leaves out names that begin with `_` or `.`")


def _hidden(path: Path) -> Iterator[Path]:
    """Yield files that Spark does not read at a given path: the path itself, or files in the folder; no empty files."""
    for child in [path] if path.is_file() else sorted(path.iterdir()):
        name = child.name
        if name.startswith(".") or (name.startswith("_") and "=" not in name and not name.startswith(_READ)):
            if child.is_dir() or child.stat().st_size:
                yield child
        elif child.is_dir():
            yield from _hidden(child)


def _files(spark: SparkSession, logs: Iterable[str], *, stream: bool = False) -> DataFrame:
    reader: Any = spark.readStream.schema(_FILES) if stream else spark.read
    files: DataFrame = (
        reader.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(next(iter(logs)) if stream else list(logs))
    )
    return files.select("path", "content")


def _opened(files: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, io.BufferedReader]]:
    for batch in files:
        for path, content in zip(batch["path"], batch["content"], strict=True):
            yield path.as_py().removeprefix("file:"), io.BufferedReader(io.BytesIO(content.as_py()))


def _batches(files: Iterable[pa.RecordBatch], reading: Reading) -> Iterator[pa.RecordBatch]:
    repeats = Repeats()
    for path, file in _opened(files):
        yield from batches_of(file, path, reading, repeats=repeats)


def _rows(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    repeats = Repeats()
    for path, file in _opened(files):
        reading = Reading(most_places=None)
        yield from batches_of(file, path, reading, repeats=repeats)
        yield from _damaged(reading)


def _damaged(reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield rows for the entries that cannot be read."""
    cells: Any = [{"problem": DAMAGED, "position": place} for place in reading.places]
    if cells:
        yield _filled(cells, SCHEMA)


def _filled(cells: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of which only some cells are given."""
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in cells], schema)


def _replayed(files: Iterable[pa.RecordBatch], shipped: ShippedBytes, system: str | None) -> Iterator[pa.RecordBatch]:
    moments = _OPENED.get(shipped.digest, lambda: cloudpickle.loads(contents(shipped)))
    reading = Reading()
    found = replay(_batches(files, reading), moments, system=system, reading=reading)
    yield from found.questions.to_batches()
    yield _filled([{"kind": ACCOUNT, "more": json.dumps(found.account())}], QUESTIONS)


def _distinct_questions(files: Iterable[pa.RecordBatch], package: str, *, hides: bool) -> Iterator[pa.RecordBatch]:
    """Yield the questions and answers, and an account of the rest in a row of its own, which no other row equals."""
    reading, found = Reading(), distinct.Log()
    yield from distinct.questions(_batches(files, reading), found, package, hides=hides).to_batches()
    account = {"read": reading.to_json(), **found.account()}
    yield _filled([{"user": uuid.uuid4().hex, "more": json.dumps(account)}], distinct.QUESTIONS)
