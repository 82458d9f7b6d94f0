"""Columns of type `char(n)`: Spark fills up what is shorter with spaces, and those are no part of a name.

A name with spaces behind it is another name to a policy: what is denied on `a` would not be denied on `a  `.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark notes what a column was declared as; to its type it is a string."""


def padded(field: StructField) -> bool:
    """Whether a column is of `char(n)`, or of arrays of that; what an expression makes of one does not tell."""
    return _declared(field).startswith(("char(", "array<char("))


def unpadded(column: Column, field: StructField) -> Column:
    """A column of that type without the padding; any other as it is."""
    if not padded(field):
        return column
    if _declared(field).startswith("array"):
        return F.transform(column, lambda name: F.rtrim(name))  # noqa: PLW0108  (by itself it would be given the place, too)
    return F.rtrim(column)


def without_padding(frame: DataFrame) -> DataFrame:
    """The frame with its columns of `char(n)` without their padding."""
    if not any(map(padded, frame.schema.fields)) or len(set(frame.columns)) < len(frame.columns):
        return frame
    names = [f"`{name.replace('`', '``')}`" for name in frame.columns]
    return frame.select(
        *(
            unpadded(F.col(name), field).alias(field.name) if padded(field) else F.col(name)
            for name, field in zip(names, frame.schema.fields, strict=True)
        )
    )


def _declared(field: StructField) -> str:
    return str((field.metadata or {}).get(_DECLARED) or field.dataType.simpleString())
