"""What is derived from a state once, kept by Spark, and used by every decision over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from privtab.spark.joins.figures import Limits
from privtab.spark.joins.holdings import HOLDER, KEY, PRINCIPAL, Tables
from privtab.spark.joins.places import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.state.tables import SparkState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """Principals, bits and places of a state, for what some requests ask."""

    principals: DataFrame
    held: DataFrame
    places: DataFrame
    rows: Mapping[str, int]
    bytes: Mapping[str, int]
    limits: Limits

    def broadcasts(self, table: str) -> bool:
        """Whether a table is small enough to be sent to every executor."""
        return self.bytes[table] <= self.limits.broadcast


def prepare(layout: Layout, state: SparkState, limits: Limits) -> Prepared:
    """Derive and count."""
    tables = Tables(layout, state.tables)
    held = tables.held().persist()
    principals = tables.principals(held).persist()
    places = held.select(KEY).distinct().persist()
    rows, sizes = {}, {}
    for name, frame, keys in (
        ("held", held, [PRINCIPAL, KEY]),
        ("principals", principals, [HOLDER, PRINCIPAL]),
        ("places", places, [KEY]),
    ):
        length = sum((F.octet_length(key) for key in keys), F.lit(0))
        found = frame.agg(
            F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(length), F.lit(0)).alias("bytes")
        ).collect()[0]
        rows[name] = found["rows"]
        sizes[name] = found["bytes"] + found["rows"] * (32 + 8 * layout.words)
    return Prepared(principals=principals, held=held, places=places, rows=rows, bytes=sizes, limits=limits)
