"""Derive the tables of the joins from a state once and keep them in Spark for all decisions by that state."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.locations import Locations
from privtab.spark.joins.below import BLOCKED, with_below
from privtab.spark.joins.figures import JoinLimits
from privtab.spark.joins.flat import ANCHOR, LOCATED, whole_paths
from privtab.spark.joins.holdings import HOLDER, KEY, PRINCIPAL, VALUES, Holdings
from privtab.spark.state.hierarchy import closed
from privtab.spark.state.together import collected_places
from privtab.state.located import containers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from privtab.spark.policies import OpenPolicy
    from privtab.spark.state.tables import SparkState
    from privtab.vocabulary import Vocabulary

REMEMBERED = 2
"""Number of prepared states that are cached."""

_known: list[tuple[tuple[int, str, str], SparkState, PreparedTables]] = []
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedTables:
    """The tables that the joins need from a state."""

    principals: DataFrame
    held: DataFrame
    places: DataFrame
    located: DataFrame | None
    """The whole paths of entities with flat ids; None if the policy has no flat ids."""
    values: DataFrame | None
    """The values of attributes of users and entities; None if the policy takes none from states."""
    rows: Mapping[str, int]
    sizes: Mapping[str, int]
    """Estimated bytes of each table as a hash table."""


def prepare(policy: OpenPolicy, state: SparkState, limits: JoinLimits) -> PreparedTables:
    """Derive and count the tables; the last states are cached, so that only the first decision by a state waits for this."""
    key = (id(state), policy.digest, limits.keep)
    with _lock:
        for position, (known, _, prepared_state) in enumerate(_known):
            if known == key:
                _known.append(_known.pop(position))
                return prepared_state
    prepared = _prepared(policy, state, limits)
    with _lock:
        _known.append((key, state, prepared))
        del _known[:-REMEMBERED]
    return prepared


def forget(state: SparkState | None = None) -> None:
    """Drop the tables derived from a state, or from all states; Spark frees the memory when nothing else refers to them."""
    with _lock:
        _known[:] = [entry for entry in _known if state is not None and entry[1] is not state]


def _prepared(policy: OpenPolicy, state: SparkState, limits: JoinLimits) -> PreparedTables:
    names, located = policy.vocabulary, None
    keys = names.keys
    if names.flat:
        # Places are collected, as when they are validated.
        places = collected_places(state.tables["entities"])
        where = Locations(names.shapes, places, containers(names, places))
        keys, located = where.keys, _located(names, where, state.tables["entities"].sparkSession)
    tables = closed(policy.json["semantics"].get("hierarchy", ()), keys, state.tables)
    holdings = Holdings(policy, tables, state.counts(), located)
    stored = _stored(holdings.held(), limits)
    if holdings.numbers.below:
        stored = _stored(with_below(stored, holdings), limits)
    frames: dict[str, tuple[DataFrame, Sequence[str | Column]]] = {
        "held": (stored, [PRINCIPAL, KEY, *([F.to_json(BLOCKED)] if holdings.numbers.below else [])]),
        "principals": (_stored(holdings.principals(stored), limits), [HOLDER, PRINCIPAL]),
        "places": (_stored(holdings.places(stored), limits), [KEY]),
    }
    if located is not None:
        frames["located"] = (located, [ANCHOR, LOCATED])
    if holdings.attributes:
        values = _stored(holdings.values(), limits)
        frames["values"] = (values, [KEY, F.to_json(VALUES)])
    counts = [_counted(name, frame, keys) for name, (frame, keys) in frames.items()]
    found = {row["table"]: row for row in reduce(lambda first, second: first.unionAll(second), counts).collect()}
    rows = {name: row["rows"] for name, row in found.items()}
    sizes = {name: row["bytes"] + row["rows"] * (40 + 8 * holdings.numbers.words) for name, row in found.items()}
    return PreparedTables(
        principals=frames["principals"][0],
        held=stored,
        places=frames["places"][0],
        located=located,
        values=frames["values"][0] if "values" in frames else None,
        rows=rows,
        sizes=sizes,
    )


def _located(names: Vocabulary, where: Locations, spark: SparkSession) -> DataFrame:
    """The table of whole paths."""
    found = dict(whole_paths(names, where))
    columns = {ANCHOR: pa.array(found.keys(), pa.string()), LOCATED: pa.array(found.values(), pa.string())}
    return spark.createDataFrame(pa.table(columns))


def _counted(name: str, frame: DataFrame, keys: Sequence[str | Column]) -> DataFrame:
    length = sum((F.octet_length(key) for key in keys), F.lit(0))
    count = F.count(F.lit(1)).alias("rows")
    return frame.agg(count, F.coalesce(F.sum(length), F.lit(0)).alias("bytes")).withColumn("table", F.lit(name))


def _stored(frame: DataFrame, limits: JoinLimits) -> DataFrame:
    """Keep a table. A checkpoint truncates its lineage: plans that contain those of other tables take longer to plan than to run."""
    return frame.localCheckpoint() if limits.keep == "checkpoint" else frame.persist()
