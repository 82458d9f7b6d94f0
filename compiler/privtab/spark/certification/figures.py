"""What a certification says of a matrix in numbers; nothing that grows with the matrix comes to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.spark.matrix.ways import ANYONE, KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SIDE = 30
"""Rows and columns of a heat map at the most."""
_KINDS = (*KINDS, ANYONE)
GROUPS = 2
"""Names of a path by which entities are put together in a heat map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much there is."""

    entitlements: int
    principals: int
    entities: int
    operations: int
    destructive: int
    kinds: tuple[tuple[str, int], ...]
    """By what they rest on, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Entitlements by row and column. `left_out`: how many rows and columns there are beside those shown."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]
    left_out: tuple[int, int]

    @property
    def most(self) -> int:
        """The greatest cell."""
        return max((cell for row in self.cells for cell in row), default=0)


def operation_name() -> Column:
    """An operation as rows name it: `table/load`."""
    return F.concat(F.col("type"), F.lit("/"), F.col("operation"))


def is_destructive(words: Sequence[str]) -> Column:
    """Whether an operation's name has one of some words in it: `drop`, `delete_all`."""
    parts = F.split(F.lower(F.col("operation")), "_")
    return F.arrays_overlap(parts, F.array(*map(F.lit, words))) if words else F.lit(False)  # noqa: FBT003  (a value)


def totals(matrix: DataFrame, words: Sequence[str]) -> Totals:
    """All of a matrix, counted."""
    row = matrix.agg(
        F.count("*").alias("entitlements"),
        F.count_distinct("principal").alias("principals"),
        F.count_distinct("type", "path").alias("entities"),
        F.count_distinct("type", "operation").alias("operations"),
        F.count_if(is_destructive(words)).alias("destructive"),
        *(F.count_if(F.col("via_kind") == kind).alias(f"kind_{at}") for at, kind in enumerate(_KINDS)),
    ).first()
    assert row is not None
    kinds = ((kind, row[f"kind_{at}"]) for at, kind in enumerate(_KINDS))
    return Totals(
        entitlements=row["entitlements"],
        principals=row["principals"],
        entities=row["entities"],
        operations=row["operations"],
        destructive=row["destructive"],
        kinds=tuple(sorted((pair for pair in kinds if pair[1]), key=lambda pair: (-pair[1], pair[0]))),
    )


def heat_maps(matrix: DataFrame) -> tuple[HeatMap, ...]:
    """Who holds, and through whom, by operation and by entity: the fullest rows and columns. Two jobs, whatever the size."""
    sides = {
        "principals": F.col("principal"),
        "ways": F.coalesce(F.col("via_principal"), F.lit(ANYONE)),
        "operations": operation_name(),
        "entities": F.substring_index(F.col("path"), "/", GROUPS),
    }
    counted = _by(matrix, [F.struct(F.lit(side).alias("side"), value.alias("value")) for side, value in sides.items()])
    window = Window.partitionBy("side")
    ranked = counted.select(
        "*",
        F.row_number().over(window.orderBy(F.desc("n"), "value")).alias("rank"),
        F.count("*").over(window).alias("all"),
    )
    chosen: dict[str, list[str]] = {side: [] for side in sides}
    beside = dict.fromkeys(sides, 0)
    for found in ranked.where(F.col("rank") <= SIDE).orderBy("side", "rank").collect():
        chosen[found["side"]].append(found["value"])
        beside[found["side"]] = max(0, found["all"] - SIDE)
    pairs = [(row, column) for row in ("principals", "ways") for column in ("operations", "entities")]
    structs = [
        F.when(
            sides[row].isin(*chosen[row]) & sides[column].isin(*chosen[column]),
            F.struct(F.lit(f"{row} by {column}").alias("map"), sides[row].alias("row"), sides[column].alias("column")),
        )
        for row, column in pairs
        if chosen[row] and chosen[column]
    ]
    cells = {(c["map"], c["row"], c["column"]): c["n"] for c in _by(matrix, structs).collect()} if structs else {}
    return tuple(
        HeatMap(
            name=f"{row} by {column}",
            rows=tuple(chosen[row]),
            columns=tuple(chosen[column]),
            cells=tuple(tuple(cells.get((f"{row} by {column}", r, c), 0) for c in chosen[column]) for r in chosen[row]),
            left_out=(beside[row], beside[column]),
        )
        for row, column in pairs
    )


def _by(matrix: DataFrame, structs: Sequence[Column]) -> DataFrame:
    """How many rows have each of some values; a row counts once for each struct that is not null."""
    each = matrix.select(F.explode(F.array(*structs)).alias("each")).where(F.col("each").isNotNull()).select("each.*")
    return each.groupBy(*each.columns).agg(F.count("*").alias("n"))


def first_rows(matrix: DataFrame, words: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """The rows that a page shows: what destroys first, then by principal and entity."""
    order = (F.desc("destructive"), "principal", "path", "type", "operation")
    shown = matrix.withColumn("destructive", is_destructive(words)).orderBy(*order).limit(limit)
    return [row.asDict(recursive=True) for row in shown.collect()]
