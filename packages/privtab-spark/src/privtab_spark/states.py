"""Load a state from any supported form and prepare it for the kernel on the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from privtab.base import HasWindows, UsageError, state_location
from privtab.engines import Batches, Index
from privtab.state import TABLE_COLUMNS, State, as_written
from privtab_spark.policies import OpenPolicy
from privtab_spark.shipping import PackedState
from privtab_spark.state.bundles import bundled, is_address, is_bundle, require_complete, rows_of_bundles
from privtab_spark.state.schemas import TABLES, is_written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.state.read import Read
    from privtab_spark.state.tables import TimedTables

Timed: TypeAlias = "State | TimedTables"
"""A state in which rows hold for a time, on the driver or in Spark."""
LOCAL = 20_000_000
"""Most rows of a state that one process holds, the driver or a task."""
REMEMBERED = 2
"""Number of states of each kind that the driver caches."""

_known: list[tuple[object, Any, Any]] = []
"""Cache entries (key, state, value), the most recently used last."""
_lock = threading.Lock()


def counted(policy: OpenPolicy, state: Any, spark: SparkSession) -> Mapping[str, int]:
    """Row count of each table of a state; of rows in Spark that are not checked yet, all of them."""
    if (read := readable(policy, state, spark)) is not None:
        return read.raw_counts
    rows = opened(policy, state, spark)
    if isinstance(rows, State):
        return {table: len(getattr(rows, table)) for table in TABLE_COLUMNS if table in TABLES or getattr(rows, table)}
    counts: Mapping[str, int] = rows.counts()
    return counts


def prepared(policy: OpenPolicy, state: Any, spark: SparkSession) -> PackedState:
    """A state packed with its policy, cached for repeated calls."""
    key = ("packed", policy.digest, *cache_key(state))
    packed: PackedState = memoised(key, state, lambda: _packed(policy, state, spark))
    return packed


def spark_state(policy: OpenPolicy, state: Any, spark: SparkSession) -> Any:
    """The state as Spark tables. Raises HasWindows, with the same state for each call, if rows hold for a time."""
    from privtab_spark.state.opening import state_tables

    def tables() -> object:
        try:
            return state_tables(spark, policy, readable(policy, state, spark) or state)
        except HasWindows as error:
            return error

    key = ("tables", policy.digest, id(spark), *cache_key(state))
    # The session is cached as well, so that no other session can reuse its id.
    found = memoised(key, (state, spark), tables)
    if isinstance(found, HasWindows):
        raise HasWindows(str(found), found.state)
    return found


def index_of(policy: OpenPolicy, state: Any, spark: SparkSession | None = None) -> Index:
    """The index of a state on the driver."""
    from privtab.state import index_document

    if is_bundle(state):
        return bundled(policy, os.fspath(state))
    return Index(index_document(policy.as_program, _local(policy, state, spark)))


def _local(policy: OpenPolicy, state: Any, spark: SparkSession | None) -> State:
    """The rows of a state on the driver: the caller asked for that, or they were found to be few enough."""
    read = readable(policy, state, spark)
    if read is not None and read.plain:
        found: State = memoised(("local", policy.digest, id(spark), *cache_key(state)), (state, spark), read.local)
        return found.plain("Spark")
    rows = opened(policy, state, spark)
    local: State = rows if isinstance(rows, State) else as_written(policy.as_program, rows.local(1 << 40))
    return local.plain("Spark")


def readable(policy: OpenPolicy, state: Any, spark: SparkSession | None) -> Read | None:
    """The rows of a state that Spark reads and that are not checked yet."""
    from privtab_spark.state.opening import read_of

    if spark is None or isinstance(state, State | str | os.PathLike):
        return None
    key = ("read", policy.digest, id(spark), *cache_key(state))
    read: Read | None = memoised(key, (state, spark), lambda: read_of(spark, policy, state))
    return read


def _packed(policy: OpenPolicy, state: Any, spark: SparkSession) -> PackedState:
    if is_bundle(state):
        return PackedState.of(Batches.of(policy.json, require_complete(bundled(policy, os.fspath(state)))))
    return PackedState.of(batches_of(policy, _local(policy, state, spark)))


def batches_of(policy: OpenPolicy, state: State) -> Batches:
    """The decider of batches of requests, using the rows of a state in this process."""
    from privtab.state import ColumnIndex, index_document

    if policy.beyond_arrays:
        return Batches.of(policy.json, Index(index_document(policy.as_program, state)))
    # By the columns of the state: no index and no object for each row is made.
    tables, roles = ColumnIndex(policy.as_program, state.plain("an index by columns")).tables()
    return Batches.of_tables(policy.json, tables, roles)


def opened(policy: OpenPolicy, state: Any, spark: SparkSession | None) -> Any:
    """The state as a State on the driver or as a SparkState."""
    if state is None:
        raise UsageError("no state given: give rows, a path, a bundle or Spark tables")
    if isinstance(state, State):
        return state
    if (read := _from_files(policy, state)) is not None:
        return read[0]
    if spark is None:
        raise UsageError(
            f"a {type(state).__name__} needs a Spark session to be read: start one, or pass it as `spark=`"
        )
    return spark_state(policy, state, spark)


def wrong_rows(policy: OpenPolicy, state: Any) -> int:
    """Count the findings that say why rows of a state in files are left out; 0 for a state in another form."""
    read = None if is_bundle(state) else _from_files(policy, state)
    return 0 if read is None else read[1]


def _from_files(policy: OpenPolicy, state: Any) -> tuple[State, int] | None:
    """As `checked_rows`; None for a state that is not in files."""
    if not isinstance(state, str | os.PathLike) or is_written(state):
        return None
    from privtab_spark.state.schemas import checked_rows

    key = ("rows", policy.digest, *cache_key(state))
    read: tuple[State, int] = memoised(key, state, lambda: checked_rows(policy.as_program, Path(state)))
    return read


def timed_rows(policy: OpenPolicy, state: Any, spark: SparkSession) -> Timed | None:
    """The rows of a state if some of them hold for a time, else None."""
    try:
        rows: object = rows_of_bundles(policy, os.fspath(state)) if is_bundle(state) else opened(policy, state, spark)
    except HasWindows as error:
        return cast("Timed", error.state)
    return rows if isinstance(rows, State) and rows.windows else None


def decided_before(policy: OpenPolicy, state: Any) -> bool:
    """Return whether requests were decided by a state, or by a part of it: then more are to be expected."""
    key = (policy.digest, *cache_key(state))
    with _lock:
        return any(known in (("packed", *key), ("part", *key)) for known, _, _ in _known)


def memoised(key: tuple[object, ...], state: Any, make: Any) -> Any:
    """The result of `make`, made once for a key whose first part is its kind; `state` is kept alive with it."""
    with _lock:
        for position, (known, _, value) in enumerate(_known):
            if known == key:
                _known.append(_known.pop(position))
                return value
    value = make()
    with _lock:
        _known.append((key, state, value))
        of_kind = [entry for entry in _known if entry[0][0] == key[0]]  # type: ignore[index]
        if len(of_kind) > REMEMBERED:
            _known.remove(of_kind[0])
    return value


def cache_key(state: Any) -> tuple[object, ...]:
    """The cache key of a state: name, times and size of its files, or the identity of the object, which the cache keeps alive.

    The key of an address is never equal to another: only its server knows whether the content has changed.
    """
    if not isinstance(state, str | os.PathLike):
        return (id(state),)
    if is_address(state):
        return (state, object())
    path, accepted = state_location(state)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    own = ((name, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_size) for name, s in stats)
    return (str(path.absolute()), accepted, *own)


def drop_cached(state: Any) -> None:
    """Drop everything cached for a state that will not be used again."""
    with _lock:
        _known[:] = [
            entry
            for entry in _known
            if not (entry[1] is state or (isinstance(entry[1], tuple) and entry[1][0] is state))
        ]
