"""Read and replay logs on Spark: each file is parsed and decided by one task, with the same functions as on one machine."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from privtab.engines.build_arrays import digest, packed
from privtab.logs.moments import Moments
from privtab.logs.reading import batches_of
from privtab.logs.replaying import QUESTIONS, Replay, replay
from privtab.logs.schema import COLUMNS, DAMAGED, SCHEMA, Reading
from privtab.spark.shipping import PackedState, WorkerCache, contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab.spark.shipping import ShippedBytes

ACCOUNT = "account"
"""The kind of the row in which a task tells what else it found."""
_FILES = "path string, modificationTime timestamp, length long, content binary"
_OPENED: WorkerCache[str, Moments] = WorkerCache()


def read(spark: SparkSession, logs: Iterable[str], *, stream: bool = False) -> DataFrame:
    """The decisions of logs, as the schema; entries that cannot be read are rows with a `problem` and a `position` alone.

    `logs`: files or folders, by any path that Spark reads. `stream`: files that appear in one folder, as a streaming DataFrame.
    """
    return _files(spark, logs, stream=stream).mapInArrow(_rows, from_arrow_schema(SCHEMA))


def replay_files(spark: SparkSession, logs: Iterable[str], moments: Moments, *, system: str | None = None) -> Replay:
    """Replay logs as `replaying.replay`. What `moments` opens, such as a registry, must be in reach of the executors."""
    content = packed(cloudpickle.dumps(moments.closed()))  # type: ignore[no-untyped-call]
    shipped = PackedState(digest=digest(content), content=content).ship(spark)
    found = (
        _files(spark, logs)
        .mapInArrow(partial(_replayed, shipped=shipped, system=system), from_arrow_schema(QUESTIONS))
        .toArrow()
    )
    merged = Replay(reading=Reading())
    merged.take(found.cast(QUESTIONS), ACCOUNT)
    return merged


def _files(spark: SparkSession, logs: Iterable[str], *, stream: bool = False) -> DataFrame:
    reader: Any = spark.readStream.schema(_FILES) if stream else spark.read
    files: DataFrame = (
        reader.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(next(iter(logs)) if stream else list(logs))
    )
    return files.select("path", "content")


def _contents(files: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    for batch in files:
        for path, content in zip(batch["path"], batch["content"], strict=True):
            yield path.as_py().removeprefix("file:"), content.as_py()


def _rows(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for path, content in _contents(files):
        reading = Reading(most_places=None)
        yield from batches_of(io.BytesIO(content), path, reading)
        if reading.places:
            wrong = [{"problem": DAMAGED, "position": place} for place in reading.places]
            rows = [{name: row.get(name) for name, _, _ in COLUMNS} for row in wrong]
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


def _replayed(files: Iterable[pa.RecordBatch], shipped: ShippedBytes, system: str | None) -> Iterator[pa.RecordBatch]:
    moments = _OPENED.get(shipped.digest, lambda: cloudpickle.loads(contents(shipped)))
    reading = Reading()
    rows = (batch for path, content in _contents(files) for batch in batches_of(io.BytesIO(content), path, reading))
    found = replay(rows, moments, system=system, reading=reading)
    yield from found.questions.to_batches()
    account = {"kind": ACCOUNT, "more": json.dumps(found.account())}
    yield pa.RecordBatch.from_pylist([{name: account.get(name) for name in QUESTIONS.names}], QUESTIONS)
