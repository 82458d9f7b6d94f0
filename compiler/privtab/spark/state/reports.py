"""Findings as rows of `schemas.FINDINGS`, and their conversion to StateFinding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from privtab.spark.state.schemas import CANONICAL, windows_in
from privtab.state.findings import CODES
from privtab.state.nodes import RowLocation, StateFinding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def shaped(frame: DataFrame, table: str, label: str) -> DataFrame:
    """Select the columns of FINDINGS from a frame of findings."""
    names = fn.create_map(*(fn.lit(part) for pair in CODES.items() for part in pair))
    return frame.select(
        fn.lit(table).alias("table"), fn.col("code"), fn.try_element_at(names, fn.col("code")).alias("name"),
        fn.col("severity"), fn.col("message"), fn.col("help"), fn.col("row"), fn.col("rows"), fn.lit(label).alias("source"),
    )  # fmt: skip


def report(
    frame: DataFrame, code: str, severity: str, message: Column, advice: str | Column, table: str, label: str
) -> DataFrame:
    """One finding for each row of a frame with canonical columns and `rows`."""
    finding_rows = frame.select(
        fn.lit(code).alias("code"), fn.lit(severity).alias("severity"), message.alias("message"),
        (fn.lit(advice) if isinstance(advice, str) else advice).alias("help"),
        _raw_json(table, windows_in(frame)).alias("row"), fn.col("rows"),
    )  # fmt: skip
    return shaped(finding_rows, table, label)


def _raw_json(table: str, window: Sequence[str]) -> Column:
    """The raw cells of a canonical row as JSON, in their canonical spelling."""
    columns: list[Column] = []
    for name in CANONICAL[table]:
        if name.endswith("type"):
            raw = name[: -len("_type")] or ("of" if table == "members" else "entity")
            columns.append(fn.concat(fn.col(name), fn.lit(":"), fn.col(name[:-4] + "path")).alias(raw))
        elif not name.endswith("path"):
            columns.append(fn.col(name))
    return fn.to_json(fn.struct(*columns, *(fn.col(name) for name in window)))


def finding_of(row: Mapping[str, Any]) -> StateFinding:
    """A row of FINDINGS as a StateFinding."""
    return StateFinding(
        place=RowLocation(path=row["source"] or "", table=row["table"], row=0),
        message=row["message"],
        code=row["code"],
        severity=row["severity"],
        help=row["help"],
        row=json.loads(row["row"] or "{}"),
    )
