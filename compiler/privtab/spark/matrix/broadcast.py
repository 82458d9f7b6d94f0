"""Send a matrix to the executors, where each worker process opens it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.engines.packed import digest, packed
from privtab.spark.shipping import PackedState, ShippedBytes, WorkerCache, contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.spark.matrix.question import Matrix


def ship(matrix: Matrix, spark: SparkSession) -> ShippedBytes:
    """Make a matrix available to a session's executors: pickled with the function if it is small, otherwise as a file."""
    content = packed(matrix)
    return PackedState(digest=digest(content), content=content).ship(spark)


_MATRICES: WorkerCache[str, Matrix] = WorkerCache()


def opened(shipped: ShippedBytes) -> Matrix:
    """On an executor: the shipped matrix, opened once for each process."""
    return _MATRICES.get(shipped.digest, lambda: contents(shipped))
