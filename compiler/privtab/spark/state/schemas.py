"""The columns of a state's tables in Spark after reading, and those of findings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from privtab.ir.nodes import Program
from privtab.moments import WINDOW
from privtab.state.findings import CODES
from privtab.state.nodes import RowLocation, StateFinding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


CANONICAL: Mapping[str, tuple[str, ...]] = {
    "members": ("user", "type", "path"),
    "memberships": ("user", "group"),
    "assignments": ("principal", "role", "scope_type", "scope_path"),
    "grants": ("grantee", "effect", "privilege", "type", "path"),
    "owners": ("type", "path", "owner"),
    "service_admins": ("user",),
    "attributes": ("attribute", "value", "user", "type", "path"),
    "entities": ("type", "path", "parent_type", "parent_path", "name"),
}
"""All are strings. The scope is null if a role is held everywhere; `path` does not include the type.

A table with rows that hold for a time also has `from` and `until`, as RFC 3339 in UTC, null for an edge that a row lacks."""

TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins")
"""The tables that every state has."""

MANIFEST = "_MANIFEST.json"
"""The file that completes a folder of tables that `Read.write` wrote."""

FINDING = "code: string, severity: string, message: string, help: string"
FINDINGS = (
    "`table` string, `code` string, `name` string, `severity` string, `message` string, `help` string, "
    "`row` string, `rows` bigint, `source` string"
)
"""`row`: the cells as JSON text; `rows`: the number of equal rows with this finding."""


def tables_of(program: Program) -> tuple[str, ...]:
    """The tables of a policy's states."""
    further = (("attributes", program.attributes), ("entities", program.flat))
    return (*TABLES, *(table for table, used in further if used))


def schema(table: str, window: Sequence[str] = ()) -> str:
    """The columns of a table as a Spark DDL schema."""
    return ", ".join(f"`{name}` string" for name in (*CANONICAL[table], *window))


def windows_in(rows: Any) -> tuple[str, ...]:
    """The columns with the time in which rows hold: of raw or of canonical rows, none or both."""
    return tuple(name for name in rows.columns if name in WINDOW)


def is_written(state: object) -> bool:
    """Whether a state is given as the path of a folder of tables that `Read.write` wrote."""
    return isinstance(state, str | os.PathLike) and (Path(state) / MANIFEST).is_file()


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
