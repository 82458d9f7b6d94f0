"""Send the arrays or the index of a state to the executors, where each worker process opens them once.

Small ones are pickled with the function. Larger ones become a file that Spark copies to every node (`addArtifacts`): once for a
session instead of with every plan, and all workers of a node map the same memory of arrays. Nothing is copied for a local master,
whose workers read the driver's file.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from privtab.base import DecisionUnavailable, RecentlyUsed
from privtab_spark.packed_values import digest, mapped, packed, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.engines import Batches

MOST_PICKLED = 256 << 10
"""Most bytes of a state that are pickled with the function."""
MOST_OPEN = 4
"""Number of states, matrices or clients that a worker process keeps open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedBytes:
    """The content that a worker needs to open a state: its bytes, or the file that contains them, by its name among those of Spark or by its path."""

    digest: str
    content: bytes | None = field(default=None, repr=False)
    file: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedState:
    """A program and the arrays or the index of a state, serialised."""

    digest: str
    content: bytes = field(repr=False)

    @classmethod
    def of(cls, batches: Batches) -> PackedState:
        """Serialise the program and the state of `batches`."""
        return cls.holding((dict(batches.engine.program), batches.state))

    @classmethod
    def holding(cls, value: Any) -> PackedState:
        """Serialise any other value that workers need, which `kept` gives them."""
        content = packed(value)
        return cls(digest=digest(content), content=content)

    def ship(self, spark: SparkSession, *, within: int = MOST_PICKLED) -> ShippedBytes:
        """Make the state available to a session's executors."""
        if len(self.content) <= within:
            return ShippedBytes(digest=self.digest, content=self.content)
        name = f"privtab-{self.digest}.bin"
        with _LOCK:
            if _is_local(spark):
                return ShippedBytes(digest=self.digest, file=str(session_file(name, self.content)))
            sent = _SENT.setdefault(spark, set())
            if name not in sent:
                spark.addArtifacts(str(session_file(name, self.content)), file=True)
                sent.add(name)
        return ShippedBytes(digest=self.digest, file=name)


_SENT: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def _is_local(spark: SparkSession) -> bool:
    """Return whether the executors are in the JVM of this program; Connect tells of no JVM."""
    context: Any = getattr(spark, "_jsc", None)
    return context is not None and bool(context.sc().isLocal())


def session_file(name: str, content: bytes) -> Path:
    """Write a file that exists until this process ends: executors may fetch it for as long as the session lives."""
    path = _folder() / name
    if not path.exists():
        path.write_bytes(content)
    return path


@cache
def _folder() -> Path:
    path = tempfile.mkdtemp(prefix="privtab-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


K = TypeVar("K")
V = TypeVar("V")


class WorkerCache(Generic[K, V]):
    """The objects that a worker process has opened, by key: each once, and only the last `most` are kept. Threads may share it."""

    def __init__(self, close: Callable[[V], object] | None = None, *, most: int = MOST_OPEN) -> None:
        dropped = None if close is None else lambda _, value: close(value)
        self._values: RecentlyUsed[K, V] = RecentlyUsed(most, dropped=dropped)
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value for a key, made if it is not there."""
        with self._lock:
            if key not in self._values:
                self._values.put(key, make())
            return cast("V", self._values.get(key))


_STATES: WorkerCache[str, Batches] = WorkerCache()
_VALUES: WorkerCache[str, Any] = WorkerCache()


def loaded(shipped: ShippedBytes) -> Batches:
    """On an executor: the shipped state, opened once for each process."""

    def load() -> Batches:
        from privtab.engines import Batches

        return Batches.of(*contents(shipped))

    return _STATES.get(shipped.digest, load)


def kept(shipped: ShippedBytes) -> Any:
    """On an executor: the shipped content, opened once for each process."""
    return _VALUES.get(shipped.digest, lambda: contents(shipped))


def contents(shipped: ShippedBytes) -> Any:
    """On an executor: the shipped content, unpacked or mapped into memory."""
    if shipped.content is not None:
        return unpacked(shipped.content)
    from pyspark.core.files import SparkFiles

    assert shipped.file is not None
    path = SparkFiles.get(shipped.file)
    if not Path(path).exists():
        raise DecisionUnavailable(f"the state was not sent to this executor: {shipped.file} is missing", retry=False)
    return mapped(path)
