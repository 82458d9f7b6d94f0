"""Send a matrix to the executors, where each worker process opens it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.engines.packed import digest, mapped, packed, unpacked
from privtab.errors import DecisionUnavailable
from privtab.spark.shipping import Packed, Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.spark.matrix.compute import Matrix

KEPT = 4
"""Number of matrices that a worker process keeps open."""


def parcel(matrix: Matrix) -> Shipped:
    """Pack a matrix as bytes, to be pickled with the object that uses it."""
    content = packed(matrix)
    return Shipped(digest=digest(content), content=content)


def ship(matrix: Matrix, spark: SparkSession) -> Shipped:
    """Make a matrix available to a session's executors: pickled with the function if it is small, otherwise as a file."""
    content = packed(matrix)
    return Packed(digest=digest(content), content=content).ship(spark)


_OPEN: OrderedDict[str, Matrix] = OrderedDict()
_LOCK = threading.Lock()


def opened(shipped: Shipped) -> Matrix:
    """On an executor: the shipped matrix, opened once for each process."""
    with _LOCK:
        found = _OPEN.get(shipped.digest)
        if found is None:
            found = _OPEN[shipped.digest] = _open(shipped)
            while len(_OPEN) > KEPT:
                _OPEN.popitem(last=False)
        _OPEN.move_to_end(shipped.digest)
        return found


def _open(shipped: Shipped) -> Matrix:
    if shipped.content is not None:
        within: Matrix = unpacked(shipped.content)
        return within
    from pyspark.core.files import SparkFiles

    assert shipped.file is not None
    path = Path(SparkFiles.get(shipped.file))
    if not path.exists():
        raise DecisionUnavailable(f"the state did not come to this executor: no {shipped.file}", retry=False)
    found: Matrix = mapped(path)
    return found
