"""Count the rows of a matrix with Spark; only aggregates are collected on the driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.printable import FORMULA
from privtab.spark.certification.results import (
    BARE,
    GROUPS,
    PAIRS,
    SIDE,
    DestructivePrincipal,
    HeatMap,
    Totals,
    assembled,
)
from privtab.spark.matrix.matrix import ANYONE, KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KINDS = (*KINDS, ANYONE)


class SparkRows:
    """The rows of a matrix as a DataFrame."""

    def __init__(self, rows: DataFrame, destructive: Collection[str]) -> None:
        """`destructive`: the operations that destroy something, each as `table/drop`."""
        self.rows = rows
        self.operation = F.concat(F.col("type"), F.lit("/"), F.col("operation"))
        self.destroys = self.operation.isin(*destructive)
        self.way = F.coalesce(F.col("via_principal"), F.lit(ANYONE))

    def totals(self) -> Totals:
        """As Rows.totals."""
        row = self.rows.agg(
            F.count("*").alias("entitlements"),
            F.count_distinct("principal").alias("principals"),
            F.count_distinct("type", "path").alias("entities"),
            F.count_distinct("type", "operation").alias("operations"),
            F.count_if(self.destroys).alias("destructive"),
            *(F.count_if(F.col("via_kind") == kind).alias(f"kind_{number}") for number, kind in enumerate(_KINDS)),
        ).first()
        assert row is not None
        kinds = ((kind, row[f"kind_{number}"]) for number, kind in enumerate(_KINDS))
        return Totals(
            entitlements=row["entitlements"],
            principals=row["principals"],
            entities=row["entities"],
            operations=row["operations"],
            destructive=row["destructive"],
            kinds=tuple(sorted((pair for pair in kinds if pair[1]), key=lambda pair: (-pair[1], pair[0]))),
        )

    def heat_maps(self) -> tuple[HeatMap, ...]:
        """As Rows.heat_maps; runs two jobs, whatever the size."""
        sides = {
            "principals": F.col("principal"),
            "ways": self.way,
            "operations": self.operation,
            "entities": F.substring_index(F.col("path"), "/", GROUPS),
        }
        counted = self._by([F.struct(F.lit(side).alias("side"), value.alias("value")) for side, value in sides.items()])
        window = Window.partitionBy("side")
        ranked = counted.select(
            "*",
            F.row_number().over(window.orderBy(F.desc("n"), "value")).alias("rank"),
            F.count("*").over(window).alias("all"),
        )
        shown: dict[str, list[str]] = {side: [] for side in sides}
        omitted = dict.fromkeys(sides, 0)
        for found in ranked.where(F.col("rank") <= SIDE).orderBy("side", "rank").collect():
            shown[found["side"]].append(found["value"])
            omitted[found["side"]] = max(0, found["all"] - SIDE)
        structs = [
            F.when(
                sides[row].isin(*shown[row]) & sides[column].isin(*shown[column]),
                F.struct(
                    F.lit(f"{row} by {column}").alias("map"), sides[row].alias("row"), sides[column].alias("column")
                ),
            )
            for row, column in PAIRS
            if shown[row] and shown[column]
        ]
        cells = {(c["map"], c["row"], c["column"]): c["n"] for c in self._by(structs).collect()} if structs else {}
        return assembled(shown, omitted, cells)

    def first_rows(self, limit: int) -> list[dict[str, Any]]:
        """As Rows.first_rows."""
        order = (F.desc("destructive"), "principal", "path", "type", "operation")
        shown = self.rows.withColumn("destructive", self.destroys).orderBy(*order).limit(limit)
        return [row.asDict(recursive=True) for row in shown.collect()]

    def destroyers(self, most: int) -> tuple[list[DestructivePrincipal], int]:
        """As Rows.destroyers."""
        by = (
            self.rows.where(self.destroys)
            .groupBy("principal")
            .agg(
                F.count("*").alias("n"),
                F.count_distinct("type", "path").alias("entities"),
                F.array_sort(F.collect_set(self.operation)).alias("operations"),
                F.array_sort(F.collect_set(self.way)).alias("through"),
            )
        )
        found = [
            DestructivePrincipal(
                principal=row["principal"],
                entities=row["entities"],
                operations=tuple(row["operations"]),
                through=tuple(row["through"]),
            )
            for row in by.orderBy(F.desc("n"), "principal").limit(most + 1).collect()
        ]
        return found[:most], len(found) if len(found) <= most else by.count()

    def open_operations(self) -> list[tuple[str, int]]:
        """As Rows.open_operations."""
        opened = self.rows.where(F.col("via_kind") == ANYONE).groupBy(self.operation.alias("operation"))
        rows = opened.agg(F.count_distinct("path").alias("n")).orderBy("operation").collect()
        return [(row["operation"], row["n"]) for row in rows]

    def users(self) -> set[str]:
        """As Rows.users."""
        return {row["user"] for row in self.rows.select("user").distinct().collect() if row["user"] is not None}

    def write_csv(self, folder: Path) -> None:
        """Write the rows as CSV, escaped so that a spreadsheet does not read a cell as a formula."""
        harmless = {
            name: F.when(F.col(name).rlike(FORMULA), F.concat(F.lit("'"), name)).otherwise(F.col(name)) for name in BARE
        }
        flat = self.rows.withColumns({"via": F.to_json("via"), **harmless})
        # Spaces are part of a name; by default, Spark would trim them.
        spaces = {"ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}
        flat.write.csv(folder.as_uri(), header=True, escape='"', **spaces)  # type: ignore[arg-type]  # by name

    def _by(self, structs: Sequence[Column]) -> DataFrame:
        """Number of rows by value of the structs; a row counts once for each struct that is not null."""
        structs_of_rows = self.rows.select(F.explode(F.array(*structs)).alias("each")).where(F.col("each").isNotNull())
        structs_of_rows = structs_of_rows.select("each.*")
        return structs_of_rows.groupBy(*structs_of_rows.columns).agg(F.count("*").alias("n"))
