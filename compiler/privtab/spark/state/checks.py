"""The raw rows of Spark tables: their columns as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from privtab.moments import WINDOW
from privtab.state.raw import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def rejected_type(data_type: str) -> str | None:
    """The type of a column whose cells cannot be read as text; None if they can."""
    accepted = ("string", "tinyint", "smallint", "int", "bigint", "void")
    return None if data_type in accepted or data_type.startswith(("varchar", "char")) else data_type


def raw(df: DataFrame, table: str) -> DataFrame:
    """The columns of a table as strings, in their order; a missing column is null.

    `from` and `until` follow if there is one of them, timestamps as RFC 3339.
    """
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    window = WINDOW if set(WINDOW) & set(types) else ()

    def text(name: str) -> Column:
        if name not in types:
            return fn.lit(None).cast("string")
        if name in WINDOW and types[name] == "timestamp":
            return fn.date_format(f"`{name}`", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
        return fn.col(f"`{name}`").cast("string")

    return df.select(*(text(name).alias(name) for name in (*COLUMNS[table].names, *window)))
